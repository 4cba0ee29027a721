// Where the messages of a group meet on one rank: envelopes that came and found no recv, receives
// that wait for an envelope, and the operations whose data is under way.
//
// A channel is the messages from one rank to another in one group, numbered from 1 apart from the
// collectives. Envelopes leave in the order of their sends. Among the messages of a channel with
// the same tag the first is matched first, and so are receives; a recv of any source takes the
// earliest envelope that came.
//
// Bounds: envelopes with data count against the eager budget of their sender (frame_sender.h), and a
// sender leaves at most kMaxUnanswered others of a channel without an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/message/message_operation.h"

namespace qccl::engine {

// 1 MiB of envelopes as they are kept.
inline constexpr std::size_t kMaxUnanswered = 16384;

// An envelope that has come and the data with it, if any.
struct Arrival {
  wire::FrameHeader header{};  // of the message frame
  wire::Envelope envelope{};
  ReceivedFrame frame{};  // held for its data; no peer: the data is still at the sender
  SendOperation* own = nullptr;
  std::uint64_t order = 0;  // among all that came to this rank in the group
};

class Mailbox {
 public:
  Mailbox(const Group& group, FrameSender& frame_sender);

  // Sends and receives alike, for reports.
  std::uint64_t next_post() { return ++posts_; }

  // ---- of the operations, from construction to destruction
  std::uint64_t add(SendOperation& send);
  void remove(SendOperation& send);
  void add(RecvOperation& receive);
  void remove(RecvOperation& receive);

  // Whether it is this send's turn to announce itself, and whether it may without its data.
  bool may_announce(const SendOperation& send) const;
  bool may_wait_for_answer(const SendOperation& send) const;
  void note_announced(const SendOperation& send, bool with_data);
  void note_answered(const SendOperation& send);

  // Finds the receive an earlier message. A message that does not fit is an error.
  Status look_for_arrival(RecvOperation& receive);
  // A message frame of `source`. Takes the frame over.
  Status on_message(GroupRank source, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // This rank's message to itself.
  Status on_own(SendOperation& send);
  // The operation that a data or grant frame from `peer` is for, if there is one.
  RecvOperation* receiver(GroupRank peer, std::uint64_t channel_number);
  SendOperation* sender(GroupRank peer, std::uint64_t channel_number);

  // Gives back all frames: the group has failed.
  void drop_frames();

 private:
  struct Channel {
    std::uint64_t next_send = 1;
    std::uint64_t next_announced = 1;
    std::size_t unanswered = 0;  // announced without data, to this peer
    std::uint64_t next_arrival = 1;
    std::vector<Arrival> arrivals;  // that no receive has matched yet, in order from `first`
    std::size_t first = 0;
  };

  Channel& channel(GroupRank member) { return channels_[member.index()]; }
  const Channel& channel(GroupRank member) const { return channels_[member.index()]; }
  std::size_t waiting_in(const Channel& channel) const { return channel.arrivals.size() - channel.first; }
  RecvOperation* match(GroupRank source, int tag);
  Status keep_or_take(GroupRank source, const Arrival& arrival);
  Status hand_over(RecvOperation& receive, GroupRank source, const Arrival& arrival);
  std::optional<std::size_t> find_tag(const Channel& channel, int tag) const;
  Arrival take_out(Channel& channel, std::size_t index);

  const Group& group_;
  FrameSender& frame_sender_;
  std::vector<Channel> channels_;         // by group rank of the peer
  std::vector<RecvOperation*> receives_;  // in posting order
  std::vector<SendOperation*> sends_;
  std::uint64_t posts_ = 0;
  std::uint64_t arrivals_ = 0;
};

// The group's mailbox, which its first message makes.
Mailbox& mailbox_of(Group& group, FrameSender& frame_sender);

}  // namespace qccl::engine
