// Sends of a plan's lanes whose payloads are made later (compute.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collective/lane_scheduler.h"
#include "engine/collective/streams.h"
#include "engine/compute/compute.h"

namespace qccl::engine {

// One thread. What it stands on outlives it. Allocates in its constructor alone.
class LaterSends {
 public:
  LaterSends(const ExecutablePlan& plan, LaterWork& work, OutboundStreams& streams);

  LaterWork& work() const { return work_; }
  void clear();
  // Whether any work has ended; then wakes all lanes, since any may have waited for it.
  Result<bool> look(LaneScheduler& scheduler);
  bool is_empty(std::size_t lane) const { return lanes_[lane].empty(); }

  // Begins the payload of a send step. False: it is there already, and the caller sends it.
  bool begin(std::size_t lane, std::uint64_t slice, std::size_t step);
  // Sends of the lane what has been made, in order. Adds to `sent_bytes` the values, in bytes, that went.
  LaneAdvance send(std::size_t lane, std::uint64_t& sent_bytes);

 private:
  struct Send {
    std::uint64_t slice;
    std::size_t step;
    std::size_t sent = 0;  // to the first peers of the step
  };
  StepStatus send_payload(std::size_t stream, ConstBytes payload);

  const ExecutablePlan& plan_;
  LaterWork& work_;
  OutboundStreams& streams_;
  std::vector<std::vector<Send>> lanes_;
};

}  // namespace qccl::engine
