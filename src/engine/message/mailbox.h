// Where the messages of a group meet on one rank: envelopes without a receive yet, receives without an envelope, and
// operations whose data is under way.
//
// A channel is the messages from one rank to another in one group. They are numbered from 1, apart from the
// collectives, and their envelopes leave in the order of the sends. Among the messages of a channel with the same tag
// the first is matched first, and so are receives. A recv from any source takes the earliest envelope that came.
//
// Bounds: envelopes with data count against the eager budget of their sender (frame_sender.h), and a sender leaves at
// most kMaxUnanswered others of a channel without an answer.
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
  GroupRank source;
  wire::FrameHeader header{};  // of the message frame
  wire::Envelope envelope{};
  ReceivedFrame frame{};         // held for its data; no peer: the data is still at the sender
  SendOperation* own = nullptr;  // this rank's send to itself
  std::uint64_t order = 0;       // among all that came to this rank in the group
};

// Envelopes that no receive has matched yet.
class UnmatchedEnvelopes {
 public:
  explicit UnmatchedEnvelopes(int world) : queues_(static_cast<std::size_t>(world)) {}

  void add(const Arrival& arrival);
  // Takes out the earliest with this tag, from `source` or, if that is none, from any rank.
  std::optional<Arrival> take(GroupRank source, int tag);
  std::size_t count(GroupRank source) { return queue(source).arrivals.size() - queue(source).first; }
  // Drops all of them; gives back their frames.
  void clear(FrameSender& frame_sender);

 private:
  struct Queue {
    std::vector<Arrival> arrivals;  // in order, from `first`
    std::size_t first = 0;
  };

  Queue& queue(GroupRank source) { return queues_[source.index()]; }
  static Arrival take_out(Queue& queue, std::size_t index);

  std::vector<Queue> queues_;  // by source
  std::uint64_t arrivals_ = 0;
};

class Mailbox {
 public:
  Mailbox(const Group& group, FrameSender& frame_sender);

  // Sends and receives alike, for reports.
  std::uint64_t next_post() { return ++posts_; }

  // ---- for operations, from construction to destruction
  // Returns the send's number in its channel.
  std::uint64_t add(SendOperation& send);
  void remove(SendOperation& send) { std::erase(sends_, &send); }
  void add(RecvOperation& receive) { receives_.push_back(&receive); }
  void remove(RecvOperation& receive) { std::erase(receives_, &receive); }

  // Whether it is this send's turn to announce itself, and whether it may without its data.
  bool may_announce(const SendOperation& send) const;
  bool may_wait_for_answer(const SendOperation& send) const;
  void note_announced(const SendOperation& send, bool with_data);
  void note_answered(const SendOperation& send);

  // Gives the receive an earlier message, if one matches. A message of another count or type is an error.
  Status match_arrival(RecvOperation& receive);
  // A message frame of `source`. Takes the frame over.
  Status on_message(GroupRank source, const wire::FrameHeader& header, const ReceivedFrame& frame);
  // This rank's message to itself.
  Status on_own(SendOperation& send);
  // The operation that a data or grant frame from `peer` is for, or null.
  RecvOperation* receiver(GroupRank peer, std::uint64_t channel_number);
  SendOperation* sender(GroupRank peer, std::uint64_t channel_number);

  // Gives back all frames: the group has failed.
  void drop_frames() { unmatched_.clear(frame_sender_); }

 private:
  struct Channel {
    std::uint64_t next_send = 1;
    std::uint64_t next_announced = 1;
    std::size_t unanswered = 0;  // announced without data, to this peer
    std::uint64_t next_arrival = 1;
  };

  Channel& channel(GroupRank member) { return channels_[member.index()]; }
  const Channel& channel(GroupRank member) const { return channels_[member.index()]; }
  Status deliver_or_keep(const Arrival& arrival);
  Status deliver(RecvOperation& receive, const Arrival& arrival);

  const Group& group_;
  FrameSender& frame_sender_;
  std::vector<Channel> channels_;  // by peer
  UnmatchedEnvelopes unmatched_;
  std::vector<RecvOperation*> receives_;  // in posting order
  std::vector<SendOperation*> sends_;
  std::uint64_t posts_ = 0;
};

// The group's mailbox, which its first message makes.
Mailbox& mailbox_of(Group& group, FrameSender& frame_sender);

}  // namespace qccl::engine
