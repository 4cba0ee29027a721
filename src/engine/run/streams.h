// The two sides of a collective's streams on one rank: what it receives and grants, and what it may send.
//
// Neither knows steps or data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/log.h"
#include "engine/call/executable_plan.h"
#include "engine/run/lane_scheduler.h"
#include "engine/state/operation.h"

namespace qccl::engine {

// A received slice, from its arrival until it is consumed.
struct HeldSlice {
  Frame frame{};
  bool is_kept = false;  // see InboundStreams::keep()
  // Set by take_slice().
  std::size_t stream = 0;
  std::uint64_t number = 0;
};

// One thread. Allocates only in the constructor.
class InboundStreams {
 public:
  InboundStreams(const StreamList& streams, const Group& group, FrameSender& frame_sender);
  ~InboundStreams();

  // Before anything moves; `call` is what all frames of the operation say.
  void begin(const wire::FrameHeader& call);

  // A frame from a peer: the lane that waits for it; nothing if no stream expects it now.
  std::optional<std::size_t> on_data(GroupRank peer, Frame&& frame);
  std::optional<std::size_t> on_request(GroupRank peer, const wire::FrameHeader& header);

  // The stream of a data frame that is arriving, if its payload may go to a destination: each slice once, and only
  // before it or a later one has come.
  std::optional<std::size_t> find_placeable(GroupRank peer, const wire::FrameHeader& header) const;
  // It goes there; counted until its frame is here.
  void note_placed(std::size_t stream, const wire::FrameHeader& header);
  bool awaits_placed() const { return placed_ > 0; }

  bool has_slice(std::size_t stream) const { return states_[stream].consumed < states_[stream].received; }
  HeldSlice take_slice(std::size_t stream);
  // Something else still reads the frame of a slice that was taken: after release(), it counts against its stream's
  // window until release_read() gives it back.
  void keep(HeldSlice& slice);
  // Gives the frame back and forgets it; an empty one stays as it is.
  void release(HeldSlice& slice) {
    if (slice.frame) release_held(slice);
  }
  // Gives back each kept frame for which is_read(lane, number) is true.
  template <class IsRead>
  void release_read(const IsRead& is_read) {
    std::erase_if(kept_, [&](HeldSlice& slice) {
      if (!is_read(streams_[slice.stream].lane, slice.number)) return false;
      QCCL_CHECK(states_[slice.stream].kept > 0);
      --states_[slice.stream].kept;
      if (needs_grant(slice.stream)) due_grants_.insert(slice.stream);
      return true;
    });
  }
  bool keeps_any() const { return !kept_.empty(); }
  void drop_frames();

  // Sends the grants that are due; true if any was sent.
  bool grant();

  // Bytes, and the peers that could have sent and did not, in the earliest phase that lacks something: later phases
  // wait for those themselves.
  Waiting waiting() const;
  bool lacks(GroupRank member) const;

 private:
  struct State {
    std::size_t first_held = 0;  // of its slots in held_
    bool needs_credit = true;    // comes by grants: large, or its sender asked
    std::uint64_t received = 0;  // slices, in order
    std::uint64_t consumed = 0;
    std::uint64_t kept = 0;  // consumed slices whose frames are still read
    std::uint64_t granted = 0;
    std::uint64_t placed = 0;  // the slices before this one have come or have a destination
    std::uint64_t received_bytes = 0;

    bool fits(const Stream& stream, const wire::FrameHeader& header, bool eager) const;
  };

  void release_held(HeldSlice& slice);
  std::size_t find(GroupRank peer, const wire::FrameHeader& header) const;
  HeldSlice& slot(std::size_t stream, std::uint64_t slice) {
    return held_[states_[stream].first_held + slice % streams_[stream].window];
  }
  bool needs_grant(std::size_t stream) const;

  const StreamList& streams_;
  const Group& group_;
  FrameSender& frame_sender_;
  wire::FrameHeader call_;
  std::vector<State> states_;
  std::vector<HeldSlice> held_;  // of each stream as many as it may hold
  std::vector<HeldSlice> kept_;  // released, and not read
  IndexSet due_grants_;          // streams to be looked at
  std::size_t placed_ = 0;       // slices on their way to their destination
};

// One thread. Allocates only in the constructor.
class OutboundStreams {
 public:
  OutboundStreams(const StreamList& streams, const Group& group, FrameSender& frame_sender)
      : streams_(streams), group_(group), frame_sender_(frame_sender), states_(streams.size()) {}

  // Before anything moves; `call` is what all frames of the operation say.
  void begin(const wire::FrameHeader& call);
  // Announces the call to the peers that hear of it by a request alone; true if any was sent.
  bool announce();
  // The lane of the stream that the grant is for; nothing if there is no such stream.
  std::optional<std::size_t> on_grant(GroupRank peer, const wire::FrameHeader& header);

  // Whether the next slice, of at most `bytes`, may go; awaited: a grant will come; none: try again.
  enum class Permission : std::uint8_t { granted, eager, awaited, none };
  Permission may_send(std::size_t stream, std::size_t bytes);
  // Room for it, as FrameSender::begin(), or for a slice that is sent later, as FrameSender::hold(). Then its
  // completion, once it may go, with a payload that lies there or anywhere else.
  Reservation begin_slice(std::size_t stream, std::size_t bytes) {
    return frame_sender_.begin(peer_of(stream), bytes, TrafficClass::data);
  }
  Reservation hold_slice(std::size_t stream, std::size_t bytes) { return frame_sender_.hold(peer_of(stream), bytes); }
  void finish_slice(std::size_t stream, Reservation&& room, ConstBytes payload, bool eagerly);

  // Those that have yet to be sent a slice.
  std::vector<GroupRank> unfinished_peers() const;

 private:
  struct State {
    bool requested = false;
    std::uint64_t sent = 0;
    std::uint64_t granted = 0;
  };

  bool request(std::size_t stream);
  WorldRank peer_of(std::size_t stream) const { return group_.world_rank(streams_[stream].peer); }

  const StreamList& streams_;
  const Group& group_;
  FrameSender& frame_sender_;
  wire::FrameHeader call_;
  std::vector<State> states_;
  bool has_announced_ = false;
};

}  // namespace qccl::engine
