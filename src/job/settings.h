#pragma once

#include <string>

#include "base/options.h"
#include "base/result.h"
#include "qccl/communicator.h"
#include "qccl/log.h"
#include "secure/key.h"

namespace qccl::comm {

// The settings of a job: init()'s options, else the environment's.
struct Settings {
  Options options;
  Algorithm algorithm = Algorithm::automatic;
  Compression compression;  // of groups that do not set their own
  LogOptions log{};
  secure::Protection protection{};
  std::string job{};               // its name, the same for newcomers
  std::string interface_filter{};  // as in bootstrap::LaunchIdentity
  std::string filter_source{};
  std::string towards{};  // a host on the network of the ranks, to choose addresses by; may be empty
};
Result<Settings> merge_options(const InitOptions& init);

}  // namespace qccl::comm
