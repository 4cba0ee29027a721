// The seam between what moves a collective's slices (PlanOperation) and what computes them.
//
// A Compute serves one operation at a time. It works on the current slice of each lane and knows neither frames nor
// credit. HostCompute is done when its functions return, as is the simulator's, which only counts; what a device begins
// ends later (DeferredSteps).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/rank.h"
#include "base/result.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/deferred_steps.h"
#include "engine/compute/math_context.h"

namespace qccl::engine {

class InboundStreams;
class OutboundStreams;

// The payload of a send step.
struct Outgoing {
  ConstBytes ready{};     // where it lies already; data() is null: write() makes it
  std::size_t limit = 0;  // the most bytes that it can have
};

// Lanes and steps are indices into the plan's schedule. One thread.
class Compute {
 public:
  Compute() = default;
  virtual ~Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // An operation begins. `arguments` and the buffers that they name stay as they are until it ends.
  virtual void begin(const CallArguments& arguments) = 0;
  // The lane's steps are about this slice from now on.
  virtual void begin_slice(std::size_t lane, std::uint64_t slice) = 0;
  // The lane's last slice is complete: gives back its buffers.
  virtual void end_lane(std::size_t lane) = 0;

  // A send step, for each of its peers.
  virtual Outgoing outgoing(std::size_t lane, std::size_t step, GroupRank peer) = 0;
  // Writes a payload that is not ready to the front of `payload`, which has Outgoing::limit bytes; returns its length.
  virtual std::size_t write(std::size_t lane, std::size_t step, GroupRank peer, Bytes payload) = 0;
  // recv_reduce and recv_copy. The payload of a recv_copy stays in place while its step's frame is forwarded.
  // CorruptData if it does not decode to the slice.
  virtual Status receive(std::size_t lane, std::size_t step, ConstBytes payload) = 0;
  // The payload of the last receive() must stay in place until the lane's next reduction.
  virtual bool keeps_part(std::size_t lane) const = 0;
  // local_reduce, local_copy and finish.
  virtual Status local(std::size_t lane, std::size_t step) = 0;
  // Where an uncompressed slice that is only copied may be received, instead of a frame; null: nowhere.
  virtual std::byte* find_destination(std::size_t lane, std::uint64_t slice) = 0;

  // The call has failed, and nothing more is computed: its kept input (CallArguments::kept) and its error feedback
  // become what they were before it.
  virtual void take_back() {}

  // The steps that end later than the functions that begin them, over an operation's streams. They and the Compute
  // outlive the result. Null: all end at once.
  virtual std::unique_ptr<DeferredSteps> defer(InboundStreams&, OutboundStreams&) { return nullptr; }
};

struct ComputeContext {
  const ExecutablePlan* plan;  // outlives the Compute
  int world;                   // of the group
  GroupRank rank;
  ScratchPool* pool;
  std::uint64_t seed;  // of codecs that draw random numbers
};

using ComputeFactory = std::function<std::unique_ptr<Compute>(const ComputeContext&)>;

}  // namespace qccl::engine
