// Classes of calls, and what a group remembers of each class: calls of one class are alike in all that the choice of an
// algorithm and the trials of automatic compression depend on.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "plan/cost/choice.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::comm {

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

}  // namespace qccl::comm
