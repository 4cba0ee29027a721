// Compares one rank's output with the expected output, block by block.
#pragma once

#include <cstdint>

#include "tools/perf/perf_bound.h"
#include "tools/perf/perf_case.h"
#include "tools/perf/perf_inputs.h"

namespace qccl::tools {

struct CheckResult {
  std::uint64_t wrong = 0;   // elements outside their bound
  double largest_error = 0;  // against the exact result
  double largest_bound = 0;  // 0: must be exact
  std::uint64_t digest = 0;  // of the output's bytes
};

// `output` is where the case placed `rank`'s result. Uncompressed results must be exact, except
// floating averages: within 2 ulp.
CheckResult check_output(const Case& c, const Effective& effective, const Inputs& inputs, int rank,
                         const std::byte* output);

}  // namespace qccl::tools
