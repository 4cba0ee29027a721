// The connections from one rank to a rank of another host: the bytes on their way on each, and the frames' order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "transport/sim/flights.h"

namespace qccl::sim {

class Connections {
 public:
  // `limit`: of the bytes on their way on a connection; 0: none.
  Connections(int count, std::uint64_t limit) : limit_(limit), in_flight_(static_cast<std::size_t>(count)) {}

  bool has_room() const { return limit_ == 0 || *std::ranges::min_element(in_flight_) < limit_; }
  // Puts the bytes on the connection that has the fewest and returns its index.
  int put(std::size_t bytes) {
    const auto emptiest = std::ranges::min_element(in_flight_);
    *emptiest += bytes;
    return static_cast<int>(emptiest - in_flight_.begin());
  }
  // The sender knows that they have arrived.
  void take_off(int connection, std::size_t bytes) { in_flight_[static_cast<std::size_t>(connection)] -= bytes; }

  // The number of the next frame in the order of sending.
  std::uint64_t next_number() { return sent_++; }
  // A frame has arrived. Returns those that nothing sent earlier keeps from being received.
  std::vector<Flight*> in_order(Flight& arrived) {
    early_.emplace(arrived.number, &arrived);
    std::vector<Flight*> ready;
    for (; !early_.empty() && early_.begin()->first == received_; ++received_) {
      ready.push_back(early_.begin()->second);
      early_.erase(early_.begin());
    }
    return ready;
  }

 private:
  const std::uint64_t limit_;
  std::vector<std::uint64_t> in_flight_;  // bytes, by connection
  std::uint64_t sent_ = 0;                // frames
  std::uint64_t received_ = 0;
  std::map<std::uint64_t, Flight*> early_;  // arrived before frames that were sent earlier
};

}  // namespace qccl::sim
