// Classes of calls, and the algorithms that a group takes for them: plan::choose() for the group's hosts, remembered.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "comm/resolve/cost_environment.h"
#include "plan/cost/cost.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::comm {

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
  // `hosts` by group rank; `round_trip` in seconds, the longest between two of the ranks.
  AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts, double round_trip = 0);

  Algorithm choose(const CallClass& call);
  plan::Choice explain(const CallClass& call) const;

 private:
  plan::SelectionKey selection_key(const CallClass& call) const;

  CostEnvironment cost_environment_;
  const std::vector<int> layout_;
  const double round_trip_;
  CallClassMemo<Algorithm> chosen_;
};

}  // namespace qccl::comm
