// The engine's options and its state, in parts that each own theirs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/compute.h"
#include "engine/compute/math_context.h"
#include "engine/failure/peer_monitor.h"
#include "engine/frame_sender.h"
#include "engine/group/group.h"
#include "engine/operation.h"
#include "transport/transport.h"

namespace qccl::engine {

struct EngineOptions {
  WorldRank rank{0};
  int world = 1;
  std::size_t slice_bytes = kDefaultSliceBytes;  // of input; at most kMaxPayloadBytes
  bool checksum = true;                          // of payloads between hosts
  std::uint64_t seed = 0;                        // of codecs that draw random numbers
  Nanoseconds peer_timeout = std::chrono::seconds(60);
  Nanoseconds heartbeat_interval = std::chrono::milliseconds(250);
  std::vector<int> hosts{};                   // of each rank in the world; empty: all share one
  std::shared_ptr<internal::LogStore> log{};  // null: none
  ComputeFactory make_compute{};              // empty: HostCompute
};

// Works of operations that have ended, to be completed once no lock is held: first in, first out. The list runs through
// the Works themselves, because an operation can end when there is no memory left. One thread.
class EndedWorks {
 public:
  // One by one: a long list would be a deep recursion.
  ~EndedWorks() {
    while (pop() != nullptr) {
    }
  }

  void push(std::shared_ptr<internal::WorkState> work, internal::SharedFailure failure) {
    internal::WorkState* const added = work.get();
    added->set_failure(std::move(failure));
    (first_ == nullptr ? first_ : last_->next_ended) = std::move(work);
    last_ = added;
  }
  // The first, or null.
  std::shared_ptr<internal::WorkState> pop() {
    if (first_ == nullptr) return nullptr;
    auto taken = std::move(first_);
    first_ = std::move(taken->next_ended);
    return taken;
  }

 private:
  std::shared_ptr<internal::WorkState> first_;
  internal::WorkState* last_ = nullptr;  // while there is a first
};

struct EngineParts {
  EngineParts(Transport& used_transport, const Clock& used_clock, EngineOptions used_options)
      : transport(used_transport),
        clock(used_clock),
        options(std::move(used_options)),
        now(clock.now()),
        frame_sender(transport, options.world, options.checksum),
        peers(options.rank, options.world, options.heartbeat_interval, options.peer_timeout, now),
        control(peers, frame_sender, options.rank, options.world),
        recorder(options.log, clock, frame_sender) {
    peers.measure(transport);
  }

  Transport& transport;
  const Clock& clock;
  EngineOptions options;
  std::atomic<std::uint64_t> rounds{0};   // of progress; relaxed: others only see that it grows
  TimePoint now;                          // as of this round of progress
  TimePoint next_device_look = kForever;  // at the copies of staged calls
  FrameSender frame_sender;
  ScratchPool pool;
  GroupTable groups;
  OperationTable operations;
  PeerMonitor peers;
  ControlQueue control;
  OperationRecorder recorder;
  EndedWorks ended;
};

}  // namespace qccl::engine
