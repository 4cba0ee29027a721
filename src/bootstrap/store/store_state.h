// What the embedded store holds: keys and values, and who waits for keys that do not exist yet.
// No sockets and no threads here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

class StoreState {
 public:
  using Waiter = std::uint64_t;
  // Null: none. Who still sends a value that is written anew keeps the old one.
  using Value = std::shared_ptr<const std::string>;

  // Limit of all keys and values together, with what keeping them costs.
  static constexpr std::size_t kMaxBytes = 64 * 1024 * 1024;

  // ResourceExhausted when full. The state is as before, as it is after std::bad_alloc.
  Status set(const std::string& key, std::string value);
  Value get(const std::string& key) const;
  bool has(const std::string& key) const { return values_.contains(key); }
  // The new sum. CorruptData if the value is no decimal number or the sum leaves 64 bits.
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  bool has_all(const std::vector<std::string>& keys) const;

  // Remembers that `waiter` waits for `keys`, in place of what it waited for before, unless all
  // exist: then false.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  // Forgets the waiter, whose wait() may have been cut short by std::bad_alloc. Takes no memory.
  void cancel(Waiter waiter);
  // One whose keys have all come to exist, until cancel().
  std::optional<Waiter> any_released() const;
  // One that still lacks a key.
  std::optional<Waiter> any_waiting() const;

 private:
  void release_waiters_of(const std::string& key);  // takes no memory

  std::map<std::string, Value> values_;
  std::size_t bytes_ = 0;
  std::map<Waiter, std::set<std::string>> lacking_;     // keys each waiter still lacks
  std::map<std::string, std::set<Waiter>> waiters_of_;  // the same, by key
  std::vector<Waiter> released_;                        // has room for all of them
};

}  // namespace qccl::bootstrap
