// The inputs of the choice of algorithms besides call and group. All ranks of a job take rank 0's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "plan/cost/cost.h"

namespace qccl::comm {

struct CostEnvironment {
  plan::Profile profile = plan::default_profile();
  bool tcp_inside = false;  // QCCL_TRANSPORT=tcp: loopback instead of shared memory
  double paced_rate = 0;    // QCCL_LINK_RATE in bytes a second: each rank has a link of its own; 0: not paced
  std::size_t slice_bytes = kDefaultSliceBytes;
  std::uint64_t most_window_bytes = plan::kMostWindowBytes;  // QCCL_WINDOW_BYTES
  int shared_cores = 0;      // of rank 0's machine, if its ranks are more; 0: each rank has a core of its own
  bool one_machine = false;  // all ranks are on rank 0's machine; hosts are containers on it

  // For ranks of which some are a round trip of so many seconds apart.
  plan::MachineModel links(std::string_view codec, double round_trip = 0) const;
  // Their window; 0 if they are near.
  std::uint64_t window_bytes(double round_trip) const;
  // The hosts to assume for ranks on these hosts: with pacing, each rank is alone.
  std::vector<int> layout(std::vector<int> hosts) const;
};

// InvalidArgument that names QCCL_PROFILE if its file cannot be read or is no profile.
Result<CostEnvironment> cost_environment_of(const Options& options);

// As text for other ranks, and back. CorruptData for any other text.
std::string to_text(const CostEnvironment& cost_environment);
Result<CostEnvironment> parse_cost_environment(std::string_view text);
// The longest text of an environment from cost_environment_of().
inline constexpr std::size_t kMaxCostEnvironmentBytes = 8192;

}  // namespace qccl::comm
