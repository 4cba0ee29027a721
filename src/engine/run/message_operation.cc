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
std::string describe_message(const char* name, const wire::Envelope& envelope, const std::string& peer) {
  std::string text = fmt::format("{}(count={}, {}, {}", name, envelope.count, to_string(envelope.type), peer);
  if (envelope.tag != 0) text += fmt::format(", tag={}", envelope.tag);
  if (!envelope.compression.is_none()) text += fmt::format(", {}", envelope.compression.to_string());
  return text + ")";
}

// Distinguishes the random numbers of a job's messages.
std::uint64_t random_counter(WorldRank from, WorldRank to, std::uint64_t number) {
  const auto pair = static_cast<std::uint64_t>(from.value()) << 32 | static_cast<std::uint32_t>(to.value());
  return kernels::mix64(kernels::mix64(pair) + number);
}

}  // namespace

MessageOperation::MessageOperation(Group& group, FrameSender& frame_sender, const MessageContext& context)
    : Operation(group, frame_sender), mailbox_(mailbox_of(group)), data_(context) {}

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

// A message that has not ended has no caller any more.
SendOperation::~SendOperation() { data_.end(false); }

void SendOperation::park() {
  data_.end(true);
  arguments_.feedback.reset();
  MessageOperation::park();
}

void SendOperation::begin(std::uint64_t number, CallArguments&& arguments, TimePoint posted) {
  Operation::begin(number, std::move(arguments), posted);
  channel_number_ = mailbox_.add(*this);
  data_.begin(arguments_, random_counter(group_.world_rank(group_.rank), group_.world_rank(to()),
                                         arguments_.random_counter.value_or(channel_number_)));
  slices_ = data_.count();
  inline_bytes_ = bytes();
  if (is_compressed()) inline_bytes_ = slices_ == 1 ? data_.payload_limit(0) : kMaxPayloadBytes;
  announced_ = false;
  answered_ = false;
  granted_ = 0;
  sent_ = 0;
}

std::string SendOperation::describe() const {
  const std::string peer = fmt::format("to={}", to().value());
  return describe_message("send", envelope(), peer);
}

// Small data goes with the envelope if the receiver's budget has room.
bool SendOperation::send_with_data(WorldRank peer, const wire::Envelope& envelope) {
  const std::size_t begin = wire::envelope_bytes(envelope);
  const std::size_t limit = begin + inline_bytes_;
  if (inline_bytes_ > kEagerStreamBytes || !frame_sender_.eager().has_room(peer, limit)) return false;
  Reservation room = frame_sender_.begin(peer, limit, TrafficClass::data);
  if (!room) return false;
  Bytes payload = payload_room(room).first(limit);
  wire::encode_envelope(envelope, payload.data());
  if (is_compressed()) {
    payload = payload.first(begin + data_.write(0, payload.subspan(begin)));
  } else if (bytes() > 0) {
    std::memcpy(payload.data() + begin, arguments_.input, bytes());
  }
  FrameHeader head = header(FrameKind::message, channel_number_, 0);
  head.phase = kEagerFlag;
  frame_sender_.eager().note_sent(peer, payload.size());
  frame_sender_.finish(std::move(room), head, payload);
  note_sent(bytes());
  slices_ = 0;
  return true;
}

bool SendOperation::announce() {
  Mailbox::Channel& channel = mailbox_.channel(to());
  if (channel.next_announced != channel_number_) return false;
  const WorldRank peer = group_.world_rank(to());
  const wire::Envelope own = envelope();
  if (to() != group_.rank && !send_with_data(peer, own)) {
    const std::size_t envelope_bytes = wire::envelope_bytes(own);
    const bool has_room =
        inline_bytes_ <= kEagerStreamBytes && frame_sender_.eager().has_room(peer, envelope_bytes + inline_bytes_);
    if (has_room || channel.unanswered >= kMaxUnanswered) return false;
    std::byte encoded[wire::kMostEnvelopeBytes];
    wire::encode_envelope(own, encoded);
    if (!frame_sender_.send_control(peer, header(FrameKind::message, channel_number_, slices_),
                                    {encoded, envelope_bytes})) {
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
  const std::size_t limit = data_.payload_limit(sent_);
  Reservation room = frame_sender_.begin(group_.world_rank(to()), limit, TrafficClass::data);
  if (!room) return false;
  const Bytes payload = payload_room(room).first(limit);
  const std::size_t written = data_.write(sent_, payload);
  frame_sender_.finish(std::move(room), header(FrameKind::message_data, channel_number_, sent_),
                       payload.first(written));
  note_sent(data_.offset(sent_ + 1) - data_.offset(sent_));
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
  result.received_bytes = data_.offset(sent_);
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
  data_.begin(arguments_, 0);
  mailbox_.add(*this);
}

std::string RecvOperation::describe() const {
  const std::string peer = wanted_source().is_none() ? "from any" : fmt::format("from={}", wanted_source().value());
  return describe_message("recv", {message().count, tag(), message().type, message().compression}, peer);
}

bool RecvOperation::matches(GroupRank source, int tag) const {
  return source_.is_none() && tag == this->tag() && (wanted_source().is_none() || wanted_source() == source);
}

Status RecvOperation::check(GroupRank source, const wire::Envelope& envelope) const {
  if (envelope.count != message().count || envelope.type != message().type ||
      envelope.compression != message().compression) {
    return Failure(
        ErrorKind::misuse,
        fmt::format("rank {} called {}, and this is {} on rank {}: count, type and compression of a message must be "
                    "equal",
                    group_.world_rank(source),
                    describe_message("send", envelope, fmt::format("to={}", group_.rank.value())), describe(),
                    group_.world_rank(group_.rank)));
  }
  return {};
}

// From here on it ends well once all slices are here.
void RecvOperation::accept(GroupRank source) {
  source_ = source;
  arguments_.work->set_source(source.value());
}

Status RecvOperation::take_own(SendOperation& send) {
  if (!is_compressed()) return take(group_.rank, send.envelope(), {send.data(), bytes()});
  QCCL_TRY(check(group_.rank, send.envelope()));
  QCCL_TRY(send.copy_to(data_));
  received_bytes_ = bytes();
  accept(group_.rank);
  return {};
}

Status RecvOperation::take(GroupRank source, const wire::Envelope& envelope, ConstBytes data) {
  QCCL_TRY(check(source, envelope));
  if (!is_compressed() && bytes() > 0) std::memmove(arguments_.output, data.data(), bytes());
  if (is_compressed()) {
    if (data_.count() != 1) return unexpected(source, fmt::format("sent {} with its envelope", describe()));
    QCCL_TRY(decode(source, 0, data));
  }
  received_bytes_ = bytes();
  accept(source);
  return {};
}

Status RecvOperation::decode(GroupRank source, std::uint64_t slice, ConstBytes payload) {
  const Status decoded = data_.read(slice, payload);
  if (decoded.ok()) return {};
  return unexpected(source, fmt::format("sent slice {} of {}, which does not decode: {}", slice, describe(),
                                        decoded.error().message));
}

Status RecvOperation::take_in_slices(GroupRank source, const wire::Envelope& envelope, std::uint64_t channel_number,
                                     std::uint64_t slices) {
  QCCL_TRY(check(source, envelope));
  if (is_compressed() && slices != data_.count()) {
    return unexpected(source,
                      fmt::format("announced {} slices for {}, which has {}", slices, describe(), data_.count()));
  }
  channel_number_ = channel_number;
  slices_ = slices;
  accept(source);
  return {};
}

Status RecvOperation::on_frame(GroupRank peer, Frame&& frame) {
  const FrameHeader& header = frame.header();
  const ConstBytes payload = frame.payload();
  std::byte* const target = arguments_.output + received_bytes_;
  const bool lies_elsewhere = frame.is_placed() && payload.data() != target;
  if (!is_next(header) || lies_elsewhere) return refuse(peer, header);
  if (is_compressed()) {
    QCCL_TRY(decode(peer, received_, payload));
    received_bytes_ = data_.offset(received_ + 1);
  } else {
    if (!frame.is_placed()) kernels::copy(target, payload.data(), payload.size());
    received_bytes_ += payload.size();
  }
  ++received_;
  return {};
}

bool RecvOperation::is_next(const FrameHeader& header) const {
  if (header.slice != received_ || received_ >= granted_) return false;
  if (is_compressed()) return true;
  const std::size_t missing = bytes() - received_bytes_;
  const bool is_last = received_ + 1 == slices_;
  return is_last ? header.payload_bytes == missing : header.payload_bytes < missing;
}

// All slices but the last have one length, so a slice's destination is known before those ahead of it have come. Each
// slice is offered a destination once, beyond what has come. A slice that then belongs elsewhere is refused.
std::byte* RecvOperation::find_destination(GroupRank, const FrameHeader& header) {
  if (is_compressed()) return nullptr;
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
