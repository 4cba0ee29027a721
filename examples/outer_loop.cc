// Trains alone and synchronises every 100 steps, with 4 bits a value: for machines that a slow line joins. Each rank
// fits a line to its own samples; all end with the same one.
//
//   build/qccl run -n 4 -- build/examples/outer_loop
#include <qccl/qccl.h>

#include <cstdio>
#include <exception>
#include <random>
#include <vector>

namespace {

constexpr std::size_t kWeights = 4096;
constexpr int kSteps = 1000;
constexpr float kRate = 0.05F;

void run() {
  qccl::Communicator world = qccl::init();
  std::vector<float> weights(kWeights, 0.0F);
  qccl::train::OuterLoop outer(world, {qccl::train::OuterParameter::of("weights", weights)},
                               {.every = 100, .delay = 10, .compression = qccl::block_int({.bits = 4})});
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::normal_distribution<float> noise;
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kWeights; ++i) {
      const auto target = static_cast<float>(i) / kWeights;
      weights[i] -= kRate * (weights[i] - (target + noise(random)));
    }
    outer.step();
  }
  outer.finish();
  if (world.rank() != 0) return;
  double error = 0;
  for (std::size_t i = 0; i < kWeights; ++i) {
    const double each = weights[i] - static_cast<double>(i) / kWeights;
    error += each * each / kWeights;
  }
  std::uint64_t bytes = 0;
  for (const qccl::train::OuterRound& round : outer.history()) bytes += round.bytes;
  std::printf("%d ranks, %zu rounds, %llu bytes sent by rank 0, mean squared error %.4f\n", world.size(),
              outer.history().size(), static_cast<unsigned long long>(bytes), error);
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
