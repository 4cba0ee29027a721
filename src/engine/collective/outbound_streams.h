// What one collective sends from one rank: how far each of its streams has come, and how far it may go, which is what
// its receiver has granted or, if all of it is small, what the eager budget has room for. Knows no steps and no data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/call/stream_layout.h"
#include "engine/operation.h"

namespace qccl::engine {

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
  // Room for it, as FrameSender::begin; then its completion with a payload that lies there, or anywhere else.
  Bytes begin_slice(std::size_t stream, std::size_t bytes);
  void finish_slice(std::size_t stream, ConstBytes payload, bool eagerly);

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
