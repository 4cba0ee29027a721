// Classes of calls, and the algorithms that a group takes for them: plan::choose() for the group's hosts, remembered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "choice/line_rate.h"
#include "choice/sites.h"
#include "plan/cost/cost.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::comm {

// The inputs of the choice of algorithms besides call and group. All ranks of a job take rank 0's.
struct CostEnvironment {
  plan::Profile profile = plan::default_profile();
  bool tcp_inside = false;  // QCCL_TRANSPORT=tcp: loopback instead of shared memory
  double paced_rate = 0;    // QCCL_LINK_RATE in bytes a second: each rank has a link of its own; 0: not paced
  std::size_t slice_bytes = kDefaultSliceBytes;
  std::size_t device_slice_bytes = kLongSliceBytes;          // of device memory: fewer launches
  std::uint64_t most_window_bytes = plan::kMostWindowBytes;  // QCCL_WINDOW_BYTES
  int shared_cores = 0;        // of rank 0's machine, if its ranks are more; 0: each rank has a core of its own
  bool one_machine = false;    // all ranks are on rank 0's machine; hosts are containers on it
  std::string sites{};         // QCCL_SITES; empty: as measured
  bool rate_is_given = false;  // by QCCL_PROFILE or QCCL_LINK_RATE; otherwise it is learned between distant ranks

  // Bytes a second of a rank's line to hosts so far away. A distant line whose rate is not known counts as one of
  // 1 Gbit/s at most: what more would be granted for the first calls would be lost on most lines.
  double line_rate(double round_trip) const;
  // For ranks so far apart.
  plan::MachineModel links(std::string_view codec, const Distance& distance = {}) const;
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
inline constexpr std::size_t kMaxCostEnvironmentBytes = 8192 + kMaxSitesBytes;

// Calls of one class are alike in all that the choice of an algorithm and the trials of automatic compression depend
// on.
struct CallClass {
  Collective collective;
  std::uint64_t elements;  // of all ranks' pieces together, where ranks have pieces
  DataType type;
  Compression compression;
};

// One value for each class, where sizes count as equal within a plan::size_class(). One thread at a time. Values stay
// where they are.
template <class Value>
class CallClassMemo {
 public:
  // Null for a class without a value.
  const Value* find(const CallClass& call) const {
    const auto found = values_.find(call);
    return found == values_.end() ? nullptr : &found->second;
  }
  void clear() { values_.clear(); }
  // The class's value, which is make() the first time.
  template <class Make>
  Value& find_or_make(const CallClass& call, const Make& make) {
    const auto found = values_.find(call);
    return found != values_.end() ? found->second : values_.emplace(call, make()).first->second;
  }

 private:
  struct IsSameClass {
    bool operator()(const CallClass& a, const CallClass& b) const {
      return plan::size_class(a.elements) == plan::size_class(b.elements) && a.collective == b.collective &&
             a.type == b.type && a.compression == b.compression;
    }
  };
  struct Hash {
    std::size_t operator()(const CallClass& call) const {
      std::size_t hash = static_cast<std::size_t>(plan::size_class(call.elements));
      hash = hash << 8 | static_cast<std::size_t>(call.collective);
      hash = hash << 8 | static_cast<std::size_t>(call.type);
      hash = hash << 8 | call.compression.codec;
      return hash ^ std::hash<double>()(call.compression.settings[0]);
    }
  };

  std::unordered_map<CallClass, Value, Hash, IsSameClass> values_;
};

// The algorithms of a group's calls that do not name one. One thread at a time. Allocates only for the first call of a
// class.
class AlgorithmTable {
 public:
  // `hosts` by group rank.
  AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts, Distance distance = {});

  // Chooses anew, for these lines.
  void use_lines(const AgreedLines& lines);
  std::uint64_t window_bytes() const {
    const double rate = std::max(cost_environment_.line_rate(distance_.round_trip), window_rate_);
    const std::uint64_t most = cost_environment_.most_window_bytes;
    return std::max(least_window_, plan::window_of(rate, distance_.round_trip, most));
  }
  Algorithm choose(const CallClass& call);
  // A hierarchical plan of the call goes over the group's sites, not its hosts.
  bool goes_by_sites(const CallClass& call);
  plan::Choice explain(const CallClass& call) const;
  // The seconds that the cost model predicts for a call with this algorithm, and for a message.
  double predict(const CallClass& call, Algorithm algorithm) const;
  double predict_message(double bytes, int from, int to) const;

 private:
  plan::SelectionKey selection_key(const CallClass& call) const;
  plan::MachineModel links(const CallClass& call) const {
    plan::MachineModel links = cost_environment_.links(call.compression.to_string(), distance_);
    links.window_bytes = window_bytes();
    links.shares_rate = shares_rate_;
    return links;
  }

  CostEnvironment cost_environment_;
  const Distance distance_;
  std::uint64_t least_window_ = 0;
  double shares_rate_ = 0;  // as MachineModel::shares_rate
  double window_rate_ = 0;
  const plan::Layout layout_;
  CallClassMemo<Algorithm> chosen_;
  CallClassMemo<bool> goes_by_sites_;
};

}  // namespace qccl::comm
