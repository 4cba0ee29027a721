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

#include "engine/operation.h"
#include "wire/frame.h"

namespace qccl::engine {

class Mailbox;

// What both halves have in common. Registers with the mailbox for as long as it lives.
class MessageOperation : public Operation {
 public:
  MessageOperation(Group& group, FrameSender& frame_sender);
  ~MessageOperation() override;
  void park() override;

  bool can_run(const CallArguments& arguments) const override {
    return arguments.message && arguments.message->incoming == message().incoming;
  }

  const Message& message() const { return *arguments_.message; }
  int tag() const { return message().tag; }
  std::size_t bytes() const { return static_cast<std::size_t>(message().count) * element_bytes(message().type); }

 protected:
  wire::FrameHeader header(wire::FrameKind kind, std::uint64_t channel_number, std::uint64_t slice) const;
  Status refuse(GroupRank peer, const wire::FrameHeader& header) const;

  Mailbox& mailbox_;
};

class SendOperation final : public MessageOperation {
 public:
  // `slice_bytes` of the frames that carry a large message.
  SendOperation(Group& group, FrameSender& frame_sender, std::size_t slice_bytes)
      : MessageOperation(group, frame_sender), slice_bytes_(slice_bytes) {}
  void begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) override;

  Result<bool> advance() override;
  bool finished() const override { return announced_ && sent_ == slices_; }
  Status on_frame(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  std::string describe() const override;
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override { return member == to() && !finished(); }

  GroupRank to() const { return message().peer; }
  // Its number among the messages from this rank to to().
  std::uint64_t channel_number() const { return channel_number_; }
  const std::byte* data() const { return arguments_.input; }
  wire::Envelope envelope() const { return {message().count, tag(), message().type}; }
  // The receiving half has copied this rank's message to itself.
  void note_taken() { sent_ = slices_; }

 private:
  bool announce();
  bool send_with_data(WorldRank peer);
  bool send_slice();

  const std::size_t slice_bytes_;
  // Set by begin().
  std::uint64_t channel_number_;
  std::uint64_t slices_;  // 0 once the data went with the envelope
  bool announced_;
  bool answered_;
  std::uint64_t granted_;
  std::uint64_t sent_;
};

class RecvOperation final : public MessageOperation {
 public:
  using MessageOperation::MessageOperation;
  void begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) override;

  Result<bool> advance() override;
  bool finished() const override { return !source_.is_none() && received_ == slices_; }
  Status on_frame(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  std::byte* find_destination(GroupRank peer, const wire::FrameHeader& header) override;
  bool awaits_placed() const override { return placed_ > received_; }
  std::string describe() const override;
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override;

  // Would take a message of `source` with this tag.
  bool matches(GroupRank source, int tag) const;
  GroupRank wanted_source() const { return message().peer; }
  // The sender of the message it takes; none before it was found.
  GroupRank source() const { return source_; }
  std::uint64_t channel_number() const { return channel_number_; }

  // Takes a message whose data is here: this rank's own, or sent with its envelope.
  Status take(GroupRank source, const wire::Envelope& envelope, const std::byte* data);
  // Takes a message whose data comes in `slices` frames.
  Status take_in_slices(GroupRank source, const wire::Envelope& envelope, std::uint64_t channel_number,
                        std::uint64_t slices);

 private:
  Status check(GroupRank source, const wire::Envelope& envelope);
  bool is_next(const wire::FrameHeader& header) const;

  // Set by begin().
  GroupRank source_;
  std::uint64_t channel_number_;
  std::uint64_t slices_;
  std::uint64_t granted_;
  std::uint64_t received_;
  std::size_t received_bytes_;
  std::uint64_t placed_;  // slices before this one have come or were offered a destination
};

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

  std::vector<Queue> queues_;  // by source
  std::uint64_t arrivals_ = 0;
};

class Mailbox {
 public:
  // Between this rank and a peer.
  struct Channel {
    std::uint64_t next_send = 1;
    std::uint64_t next_announced = 1;
    std::size_t unanswered = 0;  // announced without data, to the peer; at most kMaxUnanswered
    std::uint64_t next_arrival = 1;
  };

  Mailbox(const Group& group, FrameSender& frame_sender);

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
