// Classes of calls, and the algorithms that a group takes for them: plan::choose() for the group's hosts, remembered.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "comm/resolve/cost_environment.h"
#include "plan/cost/choice.h"
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
    const auto found = values_.find(Key(call));
    return found == values_.end() ? nullptr : &found->second;
  }
  // The class's value, which is make() the first time.
  template <class Make>
  Value& find_or_make(const CallClass& call, const Make& make) {
    const Key key(call);
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : values_.emplace(key, make()).first->second;
  }

 private:
  struct Key {
    explicit Key(const CallClass& call)
        : size_class(plan::size_class(call.elements)),
          collective(call.collective),
          type(call.type),
          compression(call.compression) {}
    friend bool operator==(const Key&, const Key&) = default;

    int size_class;
    Collective collective;
    DataType type;
    Compression compression;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::size_t hash = static_cast<std::size_t>(key.size_class);
      hash = hash << 8 | static_cast<std::size_t>(key.collective);
      hash = hash << 8 | static_cast<std::size_t>(key.type);
      hash = hash << 8 | key.compression.codec;
      return hash ^ std::hash<double>()(key.compression.settings[0]);
    }
  };

  std::unordered_map<Key, Value, Hash> values_;
};

// The algorithms of a group's calls that do not name one. One thread at a time. Allocates only for the first call of a
// class.
class AlgorithmTable {
 public:
  // `hosts` by group rank.
  AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts);

  Algorithm choose(const CallClass& call);
  plan::Choice explain(const CallClass& call) const;

 private:
  plan::SelectionKey selection_key(const CallClass& call) const;

  CostEnvironment cost_environment_;
  const std::vector<int> layout_;
  CallClassMemo<Algorithm> chosen_;
};

}  // namespace qccl::comm
