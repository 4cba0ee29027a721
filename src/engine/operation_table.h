// The operations of this rank that are in flight, in posting order, and those that have ended and wait to be reused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/operation.h"
#include "engine/retired_operations.h"

namespace qccl::engine {

// One thread. Entries may be null until erase_ended().
class OperationTable {
 public:
  using List = std::vector<std::unique_ptr<Operation>>;

  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  List::iterator begin() { return list_.begin(); }
  List::iterator end() { return list_.end(); }
  List::const_iterator begin() const { return list_.begin(); }
  List::const_iterator end() const { return list_.end(); }
  // A collective in flight, or null.
  Operation* find(const Group& group, std::uint64_t sequence) const;
  // The oldest in flight of the group, or null.
  Operation* oldest(const Group& group) const;

  Operation& add(std::unique_ptr<Operation> operation);
  // The next add() to an empty table takes no memory.
  void make_room() {
    if (list_.capacity() == 0) list_.reserve(1);
  }
  void clear() { list_.clear(); }
  void erase_ended() { std::erase(list_, nullptr); }

  // An ended operation of that kind, restarted, or a new one.
  template <class Kind, class Restart, class Make>
  std::unique_ptr<Kind> reuse_or_make(const Group& group, const CallArguments& arguments, Restart restart, Make make) {
    std::unique_ptr<Operation> retired = retired_.take(group, arguments);
    if (retired == nullptr) return make();
    std::unique_ptr<Kind> reused(static_cast<Kind*>(retired.release()));
    restart(*reused);
    return reused;
  }
  RetiredOperations& retired() { return retired_; }

  // The earliest deadline; check it, then set it anew.
  TimePoint next_deadline() const { return next_deadline_; }
  void set_next_deadline(TimePoint deadline) { next_deadline_ = deadline; }
  void note_deadline(TimePoint deadline) { next_deadline_ = std::min(next_deadline_, deadline); }
  // An operation was made without looking at the clock, which takes a tenth of a small operation's time. Its deadline
  // counts from start_timers() on, which it mostly does not live to see.
  void note_untimed() { has_untimed_ = true; }
  void start_timers(TimePoint now);

 private:
  List list_;
  RetiredOperations retired_;
  TimePoint next_deadline_ = kForever;
  bool has_untimed_ = false;
};

}  // namespace qccl::engine
