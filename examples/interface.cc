// The collectives that a backend of torch.distributed must have: all_reduce, reduce_scatter, all_gather, broadcast and
// barrier, with inputs that differ between ranks. Each result is compared with one that every rank computes by itself.
//
//   build/qccl run -n 4 -- build/examples/interface
//   torchrun --nproc-per-node 4 --no-python build/examples/interface
//   mpirun -n 4 build/examples/interface
//
// Values are small whole numbers, so that sums are exact and every comparison is for equality. Rank 0 prints a line for
// each check. The exit code of every rank is 1 if a check failed on any of them.
#include <qccl/qccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// From one element to many slices; none is a multiple of a slice or bucket size.
constexpr std::size_t kCounts[] = {1, 7, 1'000, 100'003, 1'048'579};

// Element i of rank `rank`'s input.
int input_at(int rank, std::size_t i) {
  return static_cast<int>(i % 97) - 48 + (rank + 1) * (static_cast<int>(i % 5) + 1);
}

template <class T>
std::vector<T> input_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(input_at(rank, i));
  return values;
}

// The sum of all ranks' inputs.
template <class T>
std::vector<T> sum_of(int world, std::size_t count) {
  std::vector<T> sum(count);
  for (int rank = 0; rank < world; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<T>(input_at(rank, i));
  }
  return sum;
}

template <class T>
bool all_reduce(qccl::Communicator& comm, std::size_t count) {
  const std::vector<T> input = input_of<T>(comm.rank(), count);
  std::vector<T> output(count, T{-1});
  comm.all_reduce(input.data(), output.data(), count, qccl::data_type_of<T>());
  std::vector<T> in_place = input;
  comm.all_reduce(in_place);
  const std::vector<T> expected = sum_of<T>(comm.size(), count);
  return output == expected && in_place == expected && input == input_of<T>(comm.rank(), count);
}

template <class T>
bool all_reduce_max(qccl::Communicator& comm, std::size_t count) {
  std::vector<T> values = input_of<T>(comm.rank(), count);
  comm.all_reduce(values, {.op = qccl::ReduceOp::max});
  return values == input_of<T>(comm.size() - 1, count);  // inputs grow with the rank
}

template <class T>
bool reduce_scatter(qccl::Communicator& comm, std::size_t count) {
  const auto own = static_cast<std::size_t>(comm.rank());
  const std::size_t whole = count * static_cast<std::size_t>(comm.size());
  const std::vector<T> input = input_of<T>(comm.rank(), whole);
  std::vector<T> output(count, T{-1});
  comm.reduce_scatter(input.data(), output.data(), count, qccl::data_type_of<T>());
  const std::vector<T> sum = sum_of<T>(comm.size(), whole);
  return std::equal(output.begin(), output.end(), sum.begin() + static_cast<std::ptrdiff_t>(own * count));
}

template <class T>
bool all_gather(qccl::Communicator& comm, std::size_t count) {
  std::vector<T> expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::vector<T> part = input_of<T>(rank, count);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  std::vector<T> output(expected.size(), T{-1});
  comm.all_gather(input_of<T>(comm.rank(), count), output);
  return output == expected;
}

template <class T>
bool broadcast(qccl::Communicator& comm, std::size_t count) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<T> values = input_of<T>(comm.rank(), count);
    comm.broadcast(values, {.root = root});
    if (values != input_of<T>(root, count)) return false;
  }
  return true;
}

// Ranks report in turn that they have come to the barrier; no rank may leave it before the last has come.
bool barrier(qccl::Communicator& comm) {
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  const auto now = [] { return Nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  if (comm.rank() != 0) {
    std::uint8_t turn = 0;
    comm.recv(&turn, 1, qccl::DataType::uint8, comm.rank() - 1);
  }
  std::vector<double> entered{now()};
  if (comm.rank() + 1 != comm.size()) {
    const std::uint8_t turn = 1;
    comm.send(&turn, 1, qccl::DataType::uint8, comm.rank() + 1);
  }
  comm.barrier();
  const double left = now();
  comm.all_reduce(entered, {.op = qccl::ReduceOp::max});
  // Clocks of different hosts can't be compared.
  for (const int host : comm.hosts()) {
    if (host != 0) return true;
  }
  return entered[0] <= left;
}

class Checks {
 public:
  explicit Checks(qccl::Communicator& comm) : comm_(comm) {}

  template <class T>
  void run_all(const char* type) {
    run("all_reduce", type, all_reduce<T>);
    run("all_reduce (max)", type, all_reduce_max<T>);
    run("reduce_scatter", type, reduce_scatter<T>);
    run("all_gather", type, all_gather<T>);
    run("broadcast", type, broadcast<T>);
  }

  void run_barrier() { conclude("barrier", barrier(comm_)); }

  bool passed() const { return passed_; }

 private:
  void run(const char* name, const char* type, bool (*check)(qccl::Communicator&, std::size_t)) {
    bool passed = true;
    for (const std::size_t count : kCounts) passed = check(comm_, count) && passed;
    conclude(std::string(name) + " of " + type, passed);
  }

  // All ranks learn which ranks failed and reach the same verdict.
  void conclude(const std::string& name, bool passed) {
    std::vector<std::uint8_t> failed(static_cast<std::size_t>(comm_.size()));
    comm_.all_gather(std::vector<std::uint8_t>{static_cast<std::uint8_t>(passed ? 0 : 1)}, failed);
    std::string ranks;
    for (std::size_t rank = 0; rank < failed.size(); ++rank) {
      if (failed[rank] != 0) ranks += " " + std::to_string(rank);
    }
    passed_ = passed_ && ranks.empty();
    if (comm_.rank() != 0) return;
    std::printf("%-28s %s%s\n", name.c_str(), ranks.empty() ? "passed" : "FAILED on rank", ranks.c_str());
  }

  qccl::Communicator& comm_;
  bool passed_ = true;
};

}  // namespace

int main() {
  try {
    qccl::Communicator comm = qccl::init();
    Checks checks(comm);
    checks.run_all<float>("float32");
    checks.run_all<double>("float64");
    checks.run_all<std::int32_t>("int32");
    checks.run_all<std::int64_t>("int64");
    checks.run_barrier();
    if (comm.rank() == 0) std::printf("%d ranks: %s\n", comm.size(), checks.passed() ? "passed" : "FAILED");
    std::fflush(stdout);
    comm.barrier();  // a launcher ends all ranks when one exits with 1, so none exits before rank 0 has printed
    comm.close();
    return checks.passed() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "interface: %s\n", error.what());
    return 2;
  }
}
