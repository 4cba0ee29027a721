// The contents of the embedded store: keys and values, and the waiters for keys that do not exist yet. No sockets and
// no threads here.
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
  // Null: none. A connection that is still sending a value keeps it when it is overwritten.
  using Value = std::shared_ptr<const std::string>;

  // Limit of all keys and values together, including the overhead of storing them.
  static constexpr std::size_t kMaxBytes = 64 * 1024 * 1024;

  // ResourceExhausted when full. The state is then unchanged, as it is after std::bad_alloc.
  Status set(const std::string& key, std::string value);
  Value get(const std::string& key) const;
  bool has(const std::string& key) const { return values_.contains(key); }
  // The new sum. CorruptData if the value is no decimal number or the sum leaves 64 bits.
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  bool has_all(const std::vector<std::string>& keys) const;

  // Records that `waiter` waits for `keys`, in place of its earlier wait. If all keys exist, records nothing and
  // returns false.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  // Forgets the waiter, even if std::bad_alloc interrupted its wait(). Allocates nothing.
  void cancel(Waiter waiter);
  // A waiter whose keys all exist by now, until cancel().
  std::optional<Waiter> any_released() const;
  // A waiter that still lacks a key.
  std::optional<Waiter> any_waiting() const;

 private:
  void release_waiters_of(const std::string& key);  // allocates nothing

  std::map<std::string, Value> values_;
  std::size_t bytes_ = 0;
  std::map<Waiter, std::set<std::string>> lacking_;     // keys each waiter still lacks
  std::map<std::string, std::set<Waiter>> waiters_of_;  // the same, by key
  std::vector<Waiter> released_;                        // has room for all of them
};

}  // namespace qccl::bootstrap
