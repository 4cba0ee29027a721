// Measures the creation of groups: many groups of all ranks, all of them open at the end, each used once.
//
//   build/qccl run -n 4 -- build/bench/group_creation [groups]
#include <qccl/qccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Seconds of all ranks, between a barrier before and a barrier after the call.
template <class Function>
double seconds_of(qccl::Communicator& world, const Function& function) {
  world.barrier();
  const auto began = Clock::now();
  function();
  world.barrier();
  return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace

int main(int argc, char** argv) {
  const auto count = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 1000);
  qccl::Communicator world = qccl::init();
  std::vector<int> everyone;
  for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
  std::vector<qccl::Communicator> groups;
  const double made = seconds_of(world, [&] {
    for (std::size_t i = 0; i < count; ++i) groups.push_back(world.subgroup(everyone, "group"));
  });
  std::vector<float> ones(1000, 1.0F);
  const double used = seconds_of(world, [&] {
    for (qccl::Communicator& group : groups) group.all_reduce(ones, {.op = qccl::ReduceOp::avg});
  });
  const double closed = seconds_of(world, [&] { groups.clear(); });
  if (world.rank() == 0) {
    std::printf("%zu groups of %d ranks: made in %.3f s, used in %.3f s, closed in %.3f s\n", count, world.size(), made,
                used, closed);
  }
  return ones[999] == 1.0F ? 0 : 1;
}
