// A frame on its way, and what its receiver learns of the delays before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "transport/sim/pipes.h"

namespace qccl::sim {

// Where the time before a rank's last received frame went, traced back through the frame's sender and the frame that
// the sender had received before.
struct DelayBreakdown {
  Nanoseconds wire{0};     // being sent, or queued for it at the sender's host
  Nanoseconds latency{0};  // travelling
  Nanoseconds working{0};  // in ranks' processors
  Nanoseconds waiting{0};  // queued behind frames of other hosts, or for a rank to send
};

struct Flight {
  int from = -1;
  int to = -1;
  std::size_t size = 0;
  std::vector<std::byte> bytes;  // size_only: data frames keep only the header
  Route route{};
  int connection = -1;       // -1: its bytes are not counted
  std::uint64_t number = 0;  // in the order of sending to that rank, where there are Connections
  bool is_receipt = false;   // not a frame, but the news at `to` that one of its frames has arrived at `from`
  DelayBreakdown delays{};
  TimePoint passed{};                // when the last byte passed the pipes so far
  bool has_departed = false;         // from its sender's processor
  bool has_arrival_time = false;     // its next event is its arrival
  bool was_offered = false;          // its receiver was asked for a destination of the payload
  std::byte* destination = nullptr;  // the receiver's answer
};

}  // namespace qccl::sim
