// Frames of a plan's lanes whose work ends later (compute.h): those that are sent once their payload is made, and those
// that were received and are still being read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/compute/compute.h"
#include "engine/run/lane_scheduler.h"
#include "engine/run/streams.h"

namespace qccl::engine {

// One thread. What it stands on outlives it. Allocates in its constructor alone.
class LaterFrames {
 public:
  LaterFrames(const ExecutablePlan& plan, LaterWork& work, InboundStreams& inbound, OutboundStreams& outbound);
  ~LaterFrames();

  LaterWork& work() const { return work_; }
  // Whether any work has ended; then gives back the frames that it read, and wakes all lanes, since any may have waited
  // for it.
  Result<bool> look(LaneScheduler& scheduler);
  bool is_empty(std::size_t lane) const { return lanes_[lane].empty(); }
  // The lane's first slice that is still to be sent; above all if there is none.
  std::uint64_t unsent_slice(std::size_t lane) const {
    return lanes_[lane].empty() ? UINT64_MAX : lanes_[lane].front().slice;
  }

  // Begins the payload of a send step. False: it is there already, and the caller sends it.
  bool begin(std::size_t lane, std::uint64_t slice, std::size_t step);
  // Sends of the lane what has been made, in order. Adds to `sent_bytes` the values, in bytes, that went.
  LaneAdvance send(std::size_t lane, std::uint64_t& sent_bytes);

  // The lane has gone on to its next slice: what was kept for an earlier one may have been read.
  void release_read();
  // Gives back every frame, once no work uses them: until then it does nothing.
  void drop();
  bool has_none() const {
    return !inbound_.keeps_any() && std::ranges::all_of(lanes_, [](const auto& sends) { return sends.empty(); });
  }

 private:
  struct Send {
    std::uint64_t slice;
    std::size_t step;
    std::size_t sent = 0;                                     // to the first peers of the step
    std::array<Reservation, LaterWork::kMostFrames> rooms{};  // of the first peers, where it is written besides
  };
  std::size_t stream_of(std::size_t lane, const Send& send, std::size_t peer) const {
    return plan_.streams().first[lane][send.step] + peer;
  }
  void hold_rooms(std::size_t lane, Send& send);
  StepStatus send_payload(std::size_t stream, ConstBytes payload, Reservation* held);

  const ExecutablePlan& plan_;
  LaterWork& work_;
  InboundStreams& inbound_;
  OutboundStreams& outbound_;
  std::vector<std::vector<Send>> lanes_;
};

}  // namespace qccl::engine
