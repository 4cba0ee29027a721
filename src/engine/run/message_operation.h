// The two halves of a message as operations: mailbox.h says how they meet.
#pragma once

#include <cstdint>
#include <string>

#include "engine/compute/message_slices.h"
#include "engine/state/operation.h"
#include "wire/frame.h"

namespace qccl::engine {

class Mailbox;

// What both halves have in common. Registers with the mailbox for as long as it lives.
class MessageOperation : public Operation {
 public:
  MessageOperation(Group& group, FrameSender& frame_sender, const MessageContext& context);
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

  bool is_compressed() const { return message().codec != nullptr; }

  Mailbox& mailbox_;
  MessageSlices data_;
};

class SendOperation final : public MessageOperation {
 public:
  using MessageOperation::MessageOperation;
  ~SendOperation() override;
  void park() override;
  void take_back() override { data_.end(false); }
  void begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) override;

  Result<bool> advance() override;
  bool finished() const override { return announced_ && sent_ == slices_; }
  Status on_frame(GroupRank peer, Frame&& frame) override;
  std::string describe() const override;
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override { return member == to() && !finished(); }

  GroupRank to() const { return message().peer; }
  // Its number among the messages from this rank to to().
  std::uint64_t channel_number() const { return channel_number_; }
  const std::byte* data() const { return arguments_.input; }
  wire::Envelope envelope() const { return {message().count, tag(), message().type, message().compression}; }
  // The receiving half of this rank's message to itself takes the slices; then it has them.
  Status copy_to(MessageSlices& receiver) { return receiver.copy_from(data_); }
  void note_taken() { sent_ = slices_; }

 private:
  bool announce();
  bool send_with_data(WorldRank peer, const wire::Envelope& envelope);
  bool send_slice();

  // Set by begin().
  std::uint64_t channel_number_;
  std::uint64_t slices_;      // 0 once the data went with the envelope
  std::size_t inline_bytes_;  // the most that the data takes in one frame
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
  Status on_frame(GroupRank peer, Frame&& frame) override;
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

  // Takes this rank's own message.
  Status take_own(SendOperation& send);
  // Takes a message whose data came with its envelope.
  Status take(GroupRank source, const wire::Envelope& envelope, ConstBytes data);
  // Takes a message whose data comes in `slices` frames.
  Status take_in_slices(GroupRank source, const wire::Envelope& envelope, std::uint64_t channel_number,
                        std::uint64_t slices);

 private:
  Status check(GroupRank source, const wire::Envelope& envelope) const;
  Status decode(GroupRank source, std::uint64_t slice, ConstBytes payload);
  void accept(GroupRank source);
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

}  // namespace qccl::engine
