// What one collective sends and receives on one rank: its streams, their credit, and the slices that wait in them.
//
// A stream carries the slices of one chunk from one rank to another in one phase, in order. An inbound stream holds at
// most kWindow received slices, which is what it grants; an outbound stream sends within what it was granted, or
// eagerly if all of it is small. Each belongs to a lane, which is what must look when something comes for it. Knows no
// steps and no data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/collective/index_set.h"
#include "engine/operation.h"

namespace qccl::engine {

// A received slice, from its arrival until it is consumed.
struct HeldSlice {
  ReceivedFrame frame;
  ConstBytes payload;
  bool eager = false;
};

struct StreamOptions {
  GroupRank peer;
  std::uint16_t phase;
  std::uint32_t chunk;
  std::size_t lane;
  std::uint64_t slices;
  bool eager;                        // small enough to go without a grant
  bool told = false;                 // inbound: the lane sends to the peer before it waits for it
  std::uint64_t expected_bytes = 0;  // inbound: upper limit, for reports
};

// One thread. Allocates only while it is built.
class Streams {
 public:
  Streams(const Group& group, FrameSender& frame_sender) : group_(group), frame_sender_(frame_sender) {}

  // ---- building: add all, then complete() once
  std::size_t add_inbound(const StreamOptions& options);
  std::size_t add_outbound(const StreamOptions& options);
  std::size_t inbound_count() const { return inbound_.size(); }
  std::size_t outbound_count() const { return outbound_.size(); }
  // `addressed`, by group rank: gets eager input of this rank's at once.
  void complete(std::vector<char> addressed);

  // Before anything moves, also for the next operation like the last: what its frames say.
  void begin(std::uint64_t sequence, std::uint64_t fingerprint);

  // ---- frames from peers: the lane that waits for it; nothing if no stream expects it now
  // Takes over the frame in either case.
  std::optional<std::size_t> on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // The stream of such a frame, if its slice is still wanted and neither it nor a later one has got a place.
  struct Coming {
    std::size_t lane;
    std::size_t inbound;
  };
  std::optional<Coming> coming(GroupRank peer, const wire::FrameHeader& header) const;
  // Its payload will lie in its place; counted until it is here.
  void note_placed(const Coming& coming, const wire::FrameHeader& header);
  bool awaits_placed() const { return placed_ > 0; }
  std::optional<std::size_t> on_grant(GroupRank peer, const wire::FrameHeader& header);
  std::optional<std::size_t> on_request(GroupRank peer, const wire::FrameHeader& header);

  // ---- receiving
  bool has_slice(std::size_t inbound) const { return inbound_[inbound].consumed < inbound_[inbound].received; }
  HeldSlice take_slice(std::size_t inbound);
  // Gives the frame back and forgets it; an empty one stays as it is.
  void release(HeldSlice& slice);

  // ---- sending
  enum class SendPermission : std::uint8_t {
    granted,
    eager,
    awaited,
    none
  };  // awaited: a grant comes; none: try again
  // For the next slice, of at most `bytes`.
  SendPermission may_send(std::size_t outbound, std::size_t bytes);
  // Room for it, as FrameSender::begin; then its completion with a payload that lies there, or anywhere else.
  Bytes begin_slice(std::size_t outbound, std::size_t bytes);
  void finish_slice(std::size_t outbound, ConstBytes payload, bool eagerly);

  // Tells peers what they must hear from this rank: grants, and requests; true if anything was sent.
  bool announce();
  bool announce_grants();

  Waiting waiting() const;
  bool lacks(GroupRank member) const;
  void drop_frames();

 private:
  struct Inbound {
    StreamOptions options;
    std::size_t first_held;      // of its slots in held_
    bool announced = false;      // its sender hears from us by its grant alone
    bool needs_credit = true;    // comes by grants: large, or its sender asked
    std::uint64_t received = 0;  // slices, in order
    std::uint64_t consumed = 0;
    std::uint64_t granted = 0;
    std::uint64_t placed = 0;  // the slices before this one have come or have a place
    std::uint64_t received_bytes = 0;
  };
  struct Outbound {
    StreamOptions options;
    bool announced = false;  // its receiver hears from us by our request alone
    bool requested = false;
    std::uint64_t sent = 0;
    std::uint64_t granted = 0;
  };
  // Where to find a stream by what its frames say; sorted.
  struct Address {
    GroupRank peer;
    std::uint16_t phase;
    std::uint32_t chunk;
    std::uint32_t index;
    auto key() const { return std::tuple(peer, phase, chunk); }
  };

  template <class Stream>
  static std::vector<Address> addresses(const std::vector<Stream>& streams);
  static std::size_t find(const std::vector<Address>& addresses, GroupRank peer, std::uint16_t phase,
                          std::uint32_t chunk);
  // The stream of a data frame.
  std::size_t find_inbound(GroupRank peer, const wire::FrameHeader& header) const;
  bool announce_sends();
  bool needs_grant(const Inbound& stream) const;
  bool request(Outbound& stream);
  std::vector<GroupRank> late_senders() const;
  wire::FrameHeader header(wire::FrameKind kind, const StreamOptions& stream, std::uint64_t slice) const;

  const Group& group_;
  FrameSender& frame_sender_;
  std::uint64_t sequence_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<Inbound> inbound_;
  std::vector<Outbound> outbound_;
  std::vector<Address> inbound_addresses_;
  std::vector<Address> outbound_addresses_;
  std::vector<HeldSlice> held_;  // of each inbound stream as many as it may hold
  IndexSet due_grants_;          // of inbound streams; to be looked at
  bool sends_announced_ = false;
  std::size_t placed_ = 0;  // slices on their way to their place
};

}  // namespace qccl::engine
