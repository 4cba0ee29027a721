#include "engine/run/message_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/run/mailbox.h"
#include "kernels/copy.h"

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

namespace {

// `peer` is as the caller named it: in the group.
std::string describe_message(const char* name, std::uint64_t count, DataType type, const std::string& peer, int tag) {
  return fmt::format("{}(count={}, {}, {}{})", name, count, to_string(type), peer,
                     tag == 0 ? "" : fmt::format(", tag={}", tag));
}

}  // namespace

MessageOperation::MessageOperation(Group& group, FrameSender& frame_sender)
    : Operation(group, frame_sender), mailbox_(mailbox_of(group)) {}

MessageOperation::~MessageOperation() { mailbox_.remove(*this); }

void MessageOperation::park() {
  mailbox_.remove(*this);
  Operation::park();
}

FrameHeader MessageOperation::header(FrameKind kind, std::uint64_t channel_number, std::uint64_t slice) const {
  return {.kind = kind, .group = group_.id, .sequence = channel_number, .slice = static_cast<std::uint32_t>(slice)};
}

Status MessageOperation::refuse(GroupRank peer, const FrameHeader& header) const {
  return unexpected(peer, fmt::format("sent slice {} of message {}, which {} does not expect now", header.slice,
                                      header.sequence, describe()));
}

void SendOperation::begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) {
  Operation::begin(number, std::move(arguments), posted);
  channel_number_ = mailbox_.add(*this);
  slices_ = std::max<std::uint64_t>(1, (bytes() + slice_bytes_ - 1) / slice_bytes_);
  announced_ = false;
  answered_ = false;
  granted_ = 0;
  sent_ = 0;
}

std::string SendOperation::describe() const {
  const std::string peer = fmt::format("to={}", to().value());
  return describe_message("send", message().count, message().type, peer, tag());
}

// Small data goes with the envelope if the receiver's budget has room.
bool SendOperation::send_with_data(WorldRank peer) {
  const std::size_t payload_bytes = wire::kEnvelopeBytes + bytes();
  if (bytes() > kEagerStreamBytes || !frame_sender_.eager().has_room(peer, payload_bytes)) return false;
  Reservation room = frame_sender_.begin(peer, payload_bytes, TrafficClass::data);
  if (!room) return false;
  const Bytes payload = payload_room(room);
  wire::encode_envelope(envelope(), payload.data());
  if (bytes() > 0) std::memcpy(payload.data() + wire::kEnvelopeBytes, arguments_.input, bytes());
  FrameHeader head = header(FrameKind::message, channel_number_, 0);
  head.phase = kEagerFlag;
  frame_sender_.eager().note_sent(peer, payload_bytes);
  frame_sender_.finish(std::move(room), head, payload);
  note_sent(bytes());
  slices_ = 0;
  return true;
}

bool SendOperation::announce() {
  Mailbox::Channel& channel = mailbox_.channel(to());
  if (channel.next_announced != channel_number_) return false;
  const WorldRank peer = group_.world_rank(to());
  if (to() != group_.rank && !send_with_data(peer)) {
    const bool has_room =
        bytes() <= kEagerStreamBytes && frame_sender_.eager().has_room(peer, wire::kEnvelopeBytes + bytes());
    if (has_room || channel.unanswered >= kMaxUnanswered) return false;
    std::byte envelope_bytes[wire::kEnvelopeBytes];
    wire::encode_envelope(envelope(), envelope_bytes);
    if (!frame_sender_.send_control(peer, header(FrameKind::message, channel_number_, slices_), envelope_bytes)) {
      return false;
    }
    ++channel.unanswered;
  }
  announced_ = true;
  ++channel.next_announced;
  return true;
}

Status SendOperation::on_frame(GroupRank peer, Frame&& frame) {
  const FrameHeader& header = frame.header();
  if (!announced_ || to() == group_.rank || header.slice > slices_) return refuse(peer, header);
  if (!answered_) --mailbox_.channel(to()).unanswered;
  answered_ = true;
  granted_ = std::max<std::uint64_t>(granted_, header.slice);
  return {};
}

bool SendOperation::send_slice() {
  const std::size_t begin = static_cast<std::size_t>(sent_) * slice_bytes_;
  const std::size_t length = std::min(slice_bytes_, bytes() - begin);
  Reservation room = frame_sender_.begin(group_.world_rank(to()), length, TrafficClass::data);
  if (!room) return false;
  const Bytes payload = payload_room(room);
  kernels::copy(payload.data(), arguments_.input + begin, length);
  frame_sender_.finish(std::move(room), header(FrameKind::message_data, channel_number_, sent_), payload);
  note_sent(length);
  ++sent_;
  return true;
}

Result<bool> SendOperation::advance() {
  bool moved = false;
  if (!announced_) {
    moved = announce();
    if (moved && to() == group_.rank) QCCL_TRY(mailbox_.on_own(*this));
  }
  while (sent_ < granted_ && send_slice()) moved = true;
  return moved;
}

Waiting SendOperation::waiting() const {
  Waiting result;
  if (!finished()) result.peers.push_back(to());
  result.expected_bytes = bytes();
  result.received_bytes = std::min<std::uint64_t>(bytes(), sent_ * slice_bytes_);
  return result;
}

void RecvOperation::begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) {
  Operation::begin(number, std::move(arguments), posted);
  source_ = {};
  channel_number_ = 0;
  slices_ = 0;
  granted_ = 0;
  received_ = 0;
  received_bytes_ = 0;
  placed_ = 0;
  mailbox_.add(*this);
}

std::string RecvOperation::describe() const {
  const std::string peer = wanted_source().is_none() ? "from any" : fmt::format("from={}", wanted_source().value());
  return describe_message("recv", message().count, message().type, peer, tag());
}

bool RecvOperation::matches(GroupRank source, int tag) const {
  return source_.is_none() && tag == this->tag() && (wanted_source().is_none() || wanted_source() == source);
}

Status RecvOperation::check(GroupRank source, const wire::Envelope& envelope) {
  if (envelope.count != message().count || envelope.type != message().type) {
    return Failure(
        ErrorKind::misuse,
        fmt::format("rank {} called {}, and this is {} on rank {}: count and type of a message must be equal",
                    group_.world_rank(source),
                    describe_message("send", envelope.count, envelope.type, fmt::format("to={}", group_.rank.value()),
                                     envelope.tag),
                    describe(), group_.world_rank(group_.rank)));
  }
  source_ = source;
  arguments_.work->set_source(source.value());
  return {};
}

Status RecvOperation::take(GroupRank source, const wire::Envelope& envelope, const std::byte* data) {
  QCCL_TRY(check(source, envelope));
  if (bytes() > 0) std::memmove(arguments_.output, data, bytes());
  received_bytes_ = bytes();
  return {};
}

Status RecvOperation::take_in_slices(GroupRank source, const wire::Envelope& envelope, std::uint64_t channel_number,
                                     std::uint64_t slices) {
  QCCL_TRY(check(source, envelope));
  channel_number_ = channel_number;
  slices_ = slices;
  return {};
}

Status RecvOperation::on_frame(GroupRank peer, Frame&& frame) {
  const FrameHeader& header = frame.header();
  const ConstBytes payload = frame.payload();
  std::byte* const target = arguments_.output + received_bytes_;
  const bool lies_elsewhere = frame.is_placed() && payload.data() != target;
  const bool takes = is_next(header) && !lies_elsewhere;
  if (takes && !frame.is_placed()) kernels::copy(target, payload.data(), payload.size());
  if (takes) {
    ++received_;
    received_bytes_ += payload.size();
  }
  return takes ? Status() : refuse(peer, header);
}

bool RecvOperation::is_next(const FrameHeader& header) const {
  const std::size_t missing = bytes() - received_bytes_;
  const bool is_last = received_ + 1 == slices_;
  return header.slice == received_ && received_ < granted_ &&
         (is_last ? header.payload_bytes == missing : header.payload_bytes < missing);
}

// All slices but the last have one length, so a slice's destination is known before those ahead of it have come. Each
// slice is offered a destination once, beyond what has come. A slice that then belongs elsewhere is refused.
std::byte* RecvOperation::find_destination(GroupRank, const FrameHeader& header) {
  const std::uint64_t slice = header.slice;
  const std::uint64_t length = header.payload_bytes;
  if (slice < std::max(received_, placed_) || slice >= granted_ || length > bytes()) return nullptr;
  const std::uint64_t at = slice + 1 == slices_ ? bytes() - length : slice * length;
  if (at < received_bytes_ || at > bytes() - length) return nullptr;
  placed_ = slice + 1;
  return arguments_.output + at;
}

Result<bool> RecvOperation::advance() {
  if (source_.is_none() || granted_ == slices_) return false;
  const bool is_near = frame_sender_.transport().is_local(group_.world_rank(source_));
  const std::uint64_t window_bytes = is_near ? 0 : frame_sender_.eager().window_bytes();
  const std::uint64_t window = std::max(kWindow, window_bytes / std::max<std::uint64_t>(1, bytes() / slices_));
  const std::uint64_t target = std::min(slices_, received_ + window);
  if (target - granted_ < window / (is_near ? 2 : 4) && target != slices_) return false;
  if (!frame_sender_.send_control(group_.world_rank(source_),
                                  header(FrameKind::message_grant, channel_number_, target))) {
    return false;
  }
  granted_ = target;
  return true;
}

bool RecvOperation::lacks(GroupRank member) const {
  const GroupRank awaited = source_.is_none() ? wanted_source() : source_;
  return member == awaited && !finished();
}

Waiting RecvOperation::waiting() const {
  Waiting result;
  result.expected_bytes = bytes();
  result.received_bytes = received_bytes_;
  if (finished()) return result;
  const GroupRank awaited = source_.is_none() ? wanted_source() : source_;
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    const bool could_send = awaited.is_none() ? member != group_.rank : member == awaited;
    if (could_send) result.peers.push_back(member);
  }
  return result;
}

}  // namespace qccl::engine
