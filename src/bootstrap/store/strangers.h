// Connections whose other ends have not shown to be ranks: where they come from, and until when they may stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"

namespace qccl::bootstrap {

class Strangers {
 public:
  using Id = std::uint64_t;  // grows with every connection

  // `limit`: how long each may stay.
  explicit Strangers(Nanoseconds limit) : limit_(limit) {}

  // If std::bad_alloc interrupts it, forget the id.
  void add(Id id, const std::string& address, TimePoint now);
  // Does nothing if there is no such stranger; allocates nothing.
  void forget(Id id);
  // Its time begins again. Allocates nothing.
  void extend(Id id, TimePoint now);

  std::size_t count() const { return entries_.size(); }
  // The oldest of the network with the most (os::network_of): a crowd from one network displaces only itself.
  std::optional<Id> to_displace() const;
  // One whose time is up.
  std::optional<Id> overdue(TimePoint now) const;
  // When the next one's time is up.
  TimePoint next_deadline() const { return by_deadline_.empty() ? kForever : by_deadline_.begin()->first; }

 private:
  struct Entry {
    std::string network;
    TimePoint deadline;
  };
  const Nanoseconds limit_;
  std::map<Id, Entry> entries_;
  std::map<std::string, std::set<Id>> by_network_;  // the first id is the oldest
  std::set<std::pair<TimePoint, Id>> by_deadline_;
};

}  // namespace qccl::bootstrap
