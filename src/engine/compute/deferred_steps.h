#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rank.h"
#include "base/result.h"

namespace qccl::engine {

// What came of advancing a lane.
struct LaneAdvance {
  bool moved = false;
  bool is_ready = false;   // it can go on at once
  GroupRank starved_by{};  // the peer for which there was no room
};

// The steps of an operation whose Compute ends its work later than the functions that begin it: payloads that are sent
// once they are made, and received frames that are still being read. One thread.
class DeferredSteps {
 public:
  virtual ~DeferredSteps() = default;

  // The lane may take the first step of its slice; if not, it may after a look() that was true, or after a send().
  virtual bool may_begin(std::size_t lane) const = 0;
  // Takes a send step: its payload will be sent to all of its peers. False: it is there already (Compute::outgoing()),
  // and the caller sends it.
  virtual bool begin_send(std::size_t lane, std::uint64_t slice, std::size_t step) = 0;
  // There are steps of the lane whose payload is to be sent.
  virtual bool has_sends(std::size_t lane) const = 0;
  // Sends what has been made, in order. Adds to `sent_bytes` the values, in bytes, that went.
  virtual LaneAdvance send(std::size_t lane, std::uint64_t& sent_bytes) = 0;
  // The lane's first slice that is still to be sent; above all if there is none.
  virtual std::uint64_t unsent_slice(std::size_t lane) const = 0;

  // Where the payload of a step that receives may arrive; null: nowhere now.
  virtual std::byte* find_place(std::size_t lane, std::size_t step, std::uint64_t slice) const = 0;
  // The payload of the last Compute::receive() must stay in place: its frame is to be kept (InboundStreams::keep()).
  virtual bool keeps_payload(std::size_t lane) const = 0;
  // A lane has gone on to its next slice: what was kept for an earlier one may have been read.
  virtual void release_read() = 0;

  // Whether any work has ended since the last time. Then the frames that it read are given back, and the caller wakes
  // all lanes, since any may have waited for it.
  virtual Result<bool> look() = 0;
  // Sets off what was begun.
  virtual Status submit() = 0;
  // All work has ended.
  virtual bool is_idle() const = 0;
  // Gives back every frame, once no work uses them: until then it does nothing.
  virtual void drop() = 0;
  // Nothing is left to send, and no received frame is kept.
  virtual bool has_none() const = 0;
};

}  // namespace qccl::engine
