// QCCL as a contestant of bench/peers/onebit, run by `qccl run`: rank 0 reads one command per line ("onebit", "plain")
// and prints the slowest rank's seconds and the first element of the result. The input is golden/onebit_vectors.h's.
#include <qccl/qccl.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

enum class Command : std::uint8_t { end, onebit, plain };

Command read_command() {
  std::string line;
  if (!std::getline(std::cin, line)) return Command::end;
  return line == "onebit" ? Command::onebit : Command::plain;
}

class Contestant {
 public:
  Contestant(qccl::Communicator& comm, std::size_t count)
      : comm_(comm),
        buffer_(count),
        worker_error_(qccl::onebit_sizes(count, comm.size()).worker_error),
        server_error_(qccl::onebit_sizes(count, comm.size()).server_error) {}

  void run(Command command) {
    for (std::size_t i = 0; i < buffer_.size(); ++i) {
      buffer_[i] = static_cast<float>((7 * i + 3 * static_cast<std::size_t>(comm_.rank())) % 11) / 4.0f - 1.25f;
    }
    comm_.barrier();
    const auto begin = Clock::now();
    if (command == Command::onebit) {
      comm_.compressed_allreduce(buffer_, worker_error_, server_error_);
    } else {
      comm_.all_reduce(buffer_);
    }
    std::vector<double> seconds{std::chrono::duration<double>(Clock::now() - begin).count()};
    comm_.all_reduce(seconds, {.op = qccl::ReduceOp::max});
    if (comm_.rank() == 0) std::printf("ROW %.9f %.9g\n", seconds[0], static_cast<double>(buffer_[0]));
    std::fflush(stdout);
  }

 private:
  qccl::Communicator& comm_;
  std::vector<float> buffer_;
  std::vector<float> worker_error_;
  std::vector<float> server_error_;
};

void compete(std::size_t count) {
  qccl::Communicator comm = qccl::init();
  Contestant contestant(comm, count);
  while (true) {
    std::vector<Command> command{comm.rank() == 0 ? read_command() : Command::end};
    comm.broadcast(command);
    if (command[0] == Command::end) return comm.close();
    contestant.run(command[0]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    compete(argc > 1 ? std::stoull(argv[1]) : 1 << 24);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onebit_qccl: %s\n", error.what());
    return 1;
  }
}
