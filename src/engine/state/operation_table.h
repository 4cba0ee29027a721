#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/state/operation.h"

namespace qccl::engine {

// The operations of this rank: in flight, in posting order, and parked. One thread. Entries may be null until
// erase_ended().
class OperationTable {
 public:
  using List = std::vector<std::unique_ptr<Operation>>;

  OperationTable() { parked_.reserve(kMaxParked); }

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

  Operation& add(std::unique_ptr<Operation> operation) { return *list_.emplace_back(std::move(operation)); }
  // The next add() to an empty table takes no memory.
  void make_room() { list_.reserve(1); }
  void clear() { list_.clear(); }
  void erase_ended() { std::erase(list_, nullptr); }

  // An operation that has ended well waits for the next call like its own, which then neither builds a schedule's state
  // nor allocates. take_parked() returns null if none can run the call.
  void park(std::unique_ptr<Operation> operation);
  std::unique_ptr<Operation> take_parked(const Group& group, const CallArguments& arguments);
  // The group is about to go.
  void forget(const Group& group) {
    std::erase_if(parked_, [&](const auto& operation) { return &operation->group() == &group; });
  }

  // The earliest deadline; check it, then set it anew.
  TimePoint next_deadline() const { return next_deadline_; }
  void set_next_deadline(TimePoint deadline) { next_deadline_ = deadline; }
  void note_deadline(TimePoint deadline) { next_deadline_ = std::min(next_deadline_, deadline); }
  // An operation has begun without a look at the clock, which takes a tenth of a small operation's time. Its deadline
  // counts from the next start_timers(), if it lasts that long.
  void note_untimed() { has_untimed_ = true; }
  // Returns how many had not been timed by themselves, and now are (Operation::timer()).
  std::size_t start_timers(TimePoint now);

  // When to look next at the copies of calls on device memory, which end without an event.
  TimePoint next_device_look() const { return next_device_look_; }
  void note_device_look(TimePoint time) { next_device_look_ = std::min(next_device_look_, time); }
  void forget_device_looks() { next_device_look_ = kForever; }

 private:
  // As many different calls as a program repeats; the operation of a large plan of 64 ranks takes some 200 KiB.
  static constexpr std::size_t kMaxParked = 32;

  List list_;
  std::vector<std::unique_ptr<Operation>> parked_;  // the one used last at the end
  TimePoint next_deadline_ = kForever;
  TimePoint next_device_look_ = kForever;
  bool has_untimed_ = false;
};

}  // namespace qccl::engine
