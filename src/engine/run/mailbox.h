// Messages: the two halves of each, and where those of a group meet on one rank: envelopes without a receive yet,
// receives without an envelope, and operations whose data is under way.
//
// A small message travels with its envelope, within the eager budget of its receiver. The data of others follows in
// slices, granted by the receiver once it has matched the envelope with a recv.
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

#include "engine/run/message_operation.h"
#include "wire/frame.h"

namespace qccl::engine {

// 4 MiB of envelopes as they are kept.
inline constexpr std::size_t kMaxUnanswered = 16384;

// An envelope that has come and the data with it, if any.
struct Arrival {
  GroupRank source;
  wire::FrameHeader header{};  // of the message frame
  wire::Envelope envelope{};
  Frame frame{};                 // held for its data; none: the data is still at the sender
  SendOperation* own = nullptr;  // this rank's send to itself
  std::uint64_t order = 0;       // among all that came to this rank in the group
};

// Envelopes that no receive has matched yet.
class UnmatchedEnvelopes {
 public:
  explicit UnmatchedEnvelopes(int world) : queues_(static_cast<std::size_t>(world)) {}

  void add(Arrival&& arrival);
  // Takes out the earliest with this tag, from `source` or, if that is none, from any rank.
  std::optional<Arrival> take(GroupRank source, int tag);
  std::size_t count(GroupRank source) { return queue(source).arrivals.size() - queue(source).first; }
  // Drops all of them, with their frames.
  void clear() {
    for (Queue& queue : queues_) queue = {};
  }

 private:
  struct Queue {
    std::vector<Arrival> arrivals;  // in order, from `first`
    std::size_t first = 0;
  };

  Queue& queue(GroupRank source) { return queues_[source.index()]; }

  std::vector<Queue> queues_;  // by source
  std::uint64_t arrivals_ = 0;
};

// The messages of a group on this rank. One thread.
class Mailbox final : public GroupMail {
 public:
  // Between this rank and a peer.
  struct Channel {
    std::uint64_t next_send = 1;
    std::uint64_t next_announced = 1;
    std::size_t unanswered = 0;  // announced without data, to the peer; at most kMaxUnanswered
    std::uint64_t next_arrival = 1;
  };

  explicit Mailbox(const Group& group);

  // Sends and receives alike, for reports.
  std::uint64_t next_post() { return ++posts_; }

  // ---- for operations, from construction to destruction
  // Returns the send's number in its channel.
  std::uint64_t add(SendOperation& send);
  void add(RecvOperation& receive) { receives_.push_back(&receive); }
  void remove(MessageOperation& operation);

  Channel& channel(GroupRank member) { return channels_[member.index()]; }

  // Gives the receive an earlier message, if one matches. A message of another count or type is an error.
  Status match_arrival(RecvOperation& receive);
  // A message frame of `source`.
  Status on_message(GroupRank source, Frame&& frame);
  // This rank's message to itself.
  Status on_own(SendOperation& send);
  // The operation that a data or grant frame from `peer` is for, or null.
  RecvOperation* receiver(GroupRank peer, std::uint64_t channel_number);
  SendOperation* sender(GroupRank peer, std::uint64_t channel_number);

  void drop_frames() override { unmatched_.clear(); }

 private:
  Status deliver_or_keep(Arrival&& arrival);
  Status deliver(RecvOperation& receive, const Arrival& arrival);

  const Group& group_;
  std::vector<Channel> channels_;  // by peer
  UnmatchedEnvelopes unmatched_;
  std::vector<RecvOperation*> receives_;  // in posting order
  std::vector<SendOperation*> sends_;
  std::uint64_t posts_ = 0;
};

// The group's mailbox, which its first message makes.
Mailbox& mailbox_of(Group& group);
// The same, or null if there was no message yet.
Mailbox* find_mailbox(const Group& group);

}  // namespace qccl::engine
