// Times and checks one case on all ranks.
#pragma once

#include <qccl/qccl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/perf/perf_bound.h"
#include "tools/perf/perf_case.h"
#include "tools/perf/perf_inputs.h"
#include "tools/perf/perf_memory.h"
#include "tools/perf/perf_options.h"

namespace qccl::tools {

// The same on all ranks. Times are per iteration, combined over the ranks as selected by -a.
struct Measurement {
  double mean_us = 0;  // nccl-tests' time
  double min_us = 0;
  double median_us = 0;
  double max_us = 0;
  double algbw = 0;  // GB/s, GB = 1e9
  double busbw = 0;
  // Per rank and operation, mean over ranks.
  double wire_bytes = 0;                    // payload, headers and bytes that peers read through shared memory
  double payload_bytes = 0;                 // without headers
  std::optional<double> compression_ratio;  // nothing if nothing was sent
  Effective effective;

  bool checked = false;
  std::uint64_t wrong = 0;  // elements, over all ranks
  double largest_error = 0;
  double largest_bound = 0;
  bool same_bits = true;  // on all ranks
  bool is_wrong() const { return wrong != 0 || !same_bits; }
};

// Every rank's `mine`, in rank order. Collective.
template <class T>
std::vector<T> gather(Communicator& communicator, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span<const T>(&mine, 1), std::span<T>(all));
  return all;
}

class Bench {
 public:
  // Takes buffers for cases of up to `largest_bytes` from `memory`. Throws std::bad_alloc or qccl::Error.
  Bench(Communicator communicator, std::unique_ptr<BufferMemory> memory, const PerfOptions& options,
        std::uint64_t largest_bytes);

  Communicator& communicator() { return communicator_; }
  const BufferMemory& memory() const { return *memory_; }
  // Collective. Throws qccl::Error.
  void warm_up(const Case& c) { run_untimed(c, options_.warmup_iterations, false); }
  Measurement measure(const Case& c);

 private:
  struct Timing {
    std::vector<double> microseconds;
    Traffic sent;
  };

  Effective effective(const Case& c) const;
  Placement placement_on_rank(const Case& c) const { return placement_of(c, communicator_.rank(), input_, output_); }
  void call(const Case& c, const Placement& placement) {
    run_collective(communicator_, c, placement, options_.algorithm, *memory_);
  }
  // Writes new inputs and fills the output with other values, so that the call must write it.
  Inputs prepare(const Case& c, const Effective& effective);
  Timing time_iterations(const Case& c, const Effective& effective);
  void evaluate_times(const Case& c, const std::vector<double>& mine, Measurement& m);
  void evaluate_traffic(const Case& c, const Traffic& sent, Measurement& m);
  void run_untimed(const Case& c, int calls, bool with_barriers);
  void check(Case c, Measurement& m);
  void check_as_is(const Case& c, Measurement& m);

  const std::unique_ptr<BufferMemory> memory_;  // outlives the communicator, which closes first
  Communicator communicator_;
  const PerfOptions& options_;
  std::byte* input_;
  std::byte* output_;
  std::uint64_t salt_ = 0;
};

}  // namespace qccl::tools
