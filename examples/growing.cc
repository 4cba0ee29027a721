// A job that grows while it runs. Its ranks train until there are as many of them as the second argument says; rank 0
// writes its door to the file that the first argument names. docs/growing.md explains it.
//
//   build/qccl run -n 2 -- build/examples/growing doors 3
//   QCCL_JOIN=$(cat doors) build/examples/growing doors 3
#include <qccl/qccl.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

namespace {

struct Training {
  std::vector<float> model = std::vector<float>(1000);
  std::vector<std::uint64_t> step{0};
};

// Newcomers take over what the members have; rank 0 is a member.
void share(qccl::Communicator& comm, Training& training) {
  comm.broadcast(training.model, {.root = 0});
  comm.broadcast(training.step, {.root = 0});
}

void take_step(qccl::Communicator& comm, Training& training) {
  std::vector<float> gradient(training.model.size(), 1.0F);
  comm.all_reduce(gradient, {.op = qccl::ReduceOp::avg});
  for (std::size_t i = 0; i < gradient.size(); ++i) training.model[i] += gradient[i];
  ++training.step[0];
}

void train(const std::string& doors, int ranks) {
  qccl::Communicator comm = qccl::init({.open = true});
  const bool is_newcomer = std::getenv("QCCL_JOIN") != nullptr;
  if (comm.rank() == 0) std::ofstream(doors) << comm.door();
  Training training;
  if (is_newcomer) share(comm, training);
  while (comm.size() < ranks) {
    take_step(comm, training);
    qccl::Communicator grown = comm.grow();
    if (grown.size() == comm.size()) continue;
    comm = grown;
    share(comm, training);
  }
  take_step(comm, training);
  std::printf("rank %d of %d: step %llu, model %g\n", comm.rank(), comm.size(),
              static_cast<unsigned long long>(training.step[0]), static_cast<double>(training.model[0]));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: growing DOORS RANKS");
    train(argv[1], std::atoi(argv[2]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "growing: %s\n", error.what());
    return 1;
  }
}
