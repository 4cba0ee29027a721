// Measures the cost of CallOptions::keep_input: blocks of blocking all_reduces in place, alternating without and with
// it, on the same ranks.
//
//   build/qccl run -n 2 -- build/bench/keep_input_cost
#include <qccl/qccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 30;
constexpr double kBlockSeconds = 0.05;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Microseconds of one call, as rank 0 sees them.
double time_block(qccl::Communicator& comm, std::vector<float>& data, int calls, const qccl::CallOptions& options) {
  comm.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) comm.all_reduce(data, options);
  const auto end = Clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count() / calls;
}

// The number of calls per block, the same on all ranks.
int calls_of_a_block(qccl::Communicator& comm, std::vector<float>& data, const qccl::CallOptions& options) {
  time_block(comm, data, 4, options);
  std::vector<std::int64_t> calls{static_cast<std::int64_t>(kBlockSeconds * 1e6 / time_block(comm, data, 8, options))};
  comm.broadcast(calls);
  return static_cast<int>(std::max<std::int64_t>(calls[0], 2));
}

void compare(qccl::Communicator& comm, std::size_t bytes, const qccl::Compression& compression) {
  std::vector<float> data(bytes / sizeof(float), 0.0F);
  const qccl::CallOptions plain{.compression = compression};
  qccl::CallOptions kept = plain;
  kept.keep_input = true;
  const int calls = calls_of_a_block(comm, data, kept);
  std::vector<double> without, with, ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    const bool kept_first = pair % 2 != 0;
    const double first = time_block(comm, data, calls, kept_first ? kept : plain);
    const double second = time_block(comm, data, calls, kept_first ? plain : kept);
    without.push_back(kept_first ? second : first);
    with.push_back(kept_first ? first : second);
    ratios.push_back(with.back() / without.back());
  }
  if (comm.rank() != 0) return;
  std::printf("%10zu %16s %12.1f %12.1f %10.3f\n", bytes, compression.to_string().c_str(), median(without),
              median(with), median(ratios));
  std::fflush(stdout);
}

}  // namespace

int main() {
  qccl::Communicator comm = qccl::init();
  if (comm.rank() == 0) {
    std::printf("%10s %16s %12s %12s %10s\n", "bytes", "compression", "plain (us)", "kept (us)", "ratio");
  }
  for (const qccl::Compression& compression : {qccl::none(), qccl::minmax({.bits = 4})}) {
    for (const std::size_t bytes : {64UL << 10, 1UL << 20, 16UL << 20}) compare(comm, bytes, compression);
  }
}
