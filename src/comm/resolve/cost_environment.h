// What the choice of algorithms depends on besides call and group: alike on all ranks of a job, which
// take rank 0's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "plan/cost/cost.h"
#include "plan/cost/profile.h"

namespace qccl::comm {

struct CostEnvironment {
  plan::Profile profile = plan::default_profile();
  bool tcp_inside = false;  // QCCL_TRANSPORT=tcp: loopback instead of shared memory
  double paced_rate = 0;    // QCCL_LINK_RATE in bytes a second: each rank has a link of its own; 0: no
  std::size_t slice_bytes = kDefaultSliceBytes;
  int shared_cores = 0;      // of rank 0's machine, which more ranks share; 0: each rank has its own
  bool one_machine = false;  // which has all of them, hosts being containers on it

  plan::MachineModel links(std::string_view codec) const;
  // How ranks on these hosts are to be looked at: paced, each is alone.
  std::vector<int> layout(std::vector<int> hosts) const;
};

// InvalidArgument that names QCCL_PROFILE if its file can't be read, or is no profile.
Result<CostEnvironment> cost_environment_of(const Options& options);

// As bytes for other ranks, and back. CorruptData if they are none.
std::string to_text(const CostEnvironment& cost_environment);
Result<CostEnvironment> parse_cost_environment(std::string_view text);
// The most that to_text() gives of cost_environment_of()'s.
inline constexpr std::size_t kMaxCostEnvironmentBytes = 8192;

}  // namespace qccl::comm
