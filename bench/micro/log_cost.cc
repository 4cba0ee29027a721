// Measures the cost of the communication log: blocks of blocking all_reduces, alternating with the log off and on, on
// the same ranks.
//
//   build/qccl run -n 2 -- build/bench/log_cost
#include <qccl/qccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 60;
constexpr double kBlockSeconds = 0.02;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Microseconds of one call, as rank 0 sees them.
double time_block(qccl::Communicator& comm, std::vector<float>& data, int calls, bool is_logged) {
  comm.log().configure({.enabled = is_logged});
  comm.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) comm.all_reduce(data, {.op = qccl::ReduceOp::max});
  const auto end = Clock::now();
  comm.log().clear();
  return std::chrono::duration<double, std::micro>(end - begin).count() / calls;
}

// The number of calls per block, the same on all ranks.
int calls_of_a_block(qccl::Communicator& comm, std::vector<float>& data) {
  std::vector<std::int64_t> calls{
      static_cast<std::int64_t>(kBlockSeconds * 1e6 / std::max(0.1, time_block(comm, data, 200, false)))};
  comm.broadcast(calls);
  return static_cast<int>(std::max<std::int64_t>(calls[0], 4));
}

void compare(qccl::Communicator& comm, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  time_block(comm, data, 200, true);
  const int calls = calls_of_a_block(comm, data);
  std::vector<double> off, on, ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    const bool on_first = pair % 2 != 0;
    const double first = time_block(comm, data, calls, on_first);
    const double second = time_block(comm, data, calls, !on_first);
    off.push_back(on_first ? second : first);
    on.push_back(on_first ? first : second);
    ratios.push_back(on.back() / off.back());
  }
  if (comm.rank() != 0) return;
  std::printf("%10zu %12.3f %12.3f %10.3f\n", count * sizeof(float), median(off), median(on), median(ratios));
  std::fflush(stdout);
}

}  // namespace

int main() {
  qccl::Communicator comm = qccl::init();
  if (comm.rank() == 0) std::printf("%10s %12s %12s %10s\n", "bytes", "off (us)", "on (us)", "on / off");
  for (const std::size_t bytes : {4, 4096, 65536, 1 << 20}) compare(comm, bytes / sizeof(float));
}
