#include "engine/message/mailbox.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::engine {

using wire::FrameHeader;

Mailbox::Mailbox(const Group& group, FrameSender& frame_sender)
    : group_(group), frame_sender_(frame_sender), channels_(static_cast<std::size_t>(group.world())) {}

// ---- operations

std::uint64_t Mailbox::add(SendOperation& send) {
  sends_.push_back(&send);
  return channel(send.to()).next_send++;
}

void Mailbox::remove(SendOperation& send) { std::erase(sends_, &send); }

void Mailbox::add(RecvOperation& receive) { receives_.push_back(&receive); }

void Mailbox::remove(RecvOperation& receive) { std::erase(receives_, &receive); }

bool Mailbox::may_announce(const SendOperation& send) const {
  return channel(send.to()).next_announced == send.channel_number();
}

bool Mailbox::may_wait_for_answer(const SendOperation& send) const {
  return channel(send.to()).unanswered < kMaxUnanswered;
}

void Mailbox::note_announced(const SendOperation& send, bool with_data) {
  Channel& to = channel(send.to());
  ++to.next_announced;
  if (!with_data) ++to.unanswered;
}

void Mailbox::note_answered(const SendOperation& send) { --channel(send.to()).unanswered; }

RecvOperation* Mailbox::receiver(GroupRank peer, std::uint64_t channel_number) {
  const auto found = std::find_if(receives_.begin(), receives_.end(), [&](const RecvOperation* receive) {
    return receive->source() == peer && receive->channel_number() == channel_number;
  });
  return found == receives_.end() ? nullptr : *found;
}

SendOperation* Mailbox::sender(GroupRank peer, std::uint64_t channel_number) {
  const auto found = std::find_if(sends_.begin(), sends_.end(), [&](const SendOperation* send) {
    return send->to() == peer && send->channel_number() == channel_number;
  });
  return found == sends_.end() ? nullptr : *found;
}

// ---- matching

RecvOperation* Mailbox::match(GroupRank source, int tag) {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const RecvOperation* receive) { return receive->matches(source, tag); });
  return found == receives_.end() ? nullptr : *found;
}

std::optional<std::size_t> Mailbox::find_tag(const Channel& from, int tag) const {
  for (std::size_t i = from.first; i < from.arrivals.size(); ++i) {
    if (from.arrivals[i].envelope.tag == tag) return i;
  }
  return std::nullopt;
}

Arrival Mailbox::take_out(Channel& from, std::size_t index) {
  const Arrival taken = from.arrivals[index];
  if (index == from.first) {
    ++from.first;
  } else {
    from.arrivals.erase(from.arrivals.begin() + static_cast<std::ptrdiff_t>(index));
  }
  if (from.first == from.arrivals.size()) {
    from.arrivals.clear();
    from.first = 0;
  } else if (from.first * 2 > from.arrivals.size()) {
    from.arrivals.erase(from.arrivals.begin(), from.arrivals.begin() + static_cast<std::ptrdiff_t>(from.first));
    from.first = 0;
  }
  return taken;
}

Status Mailbox::look_for_arrival(RecvOperation& receive) {
  const GroupRank wanted = receive.wanted_source();
  GroupRank source;
  std::size_t index = 0;
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (!wanted.is_none() && wanted != member) continue;
    const auto found = find_tag(channel(member), receive.tag());
    if (!found) continue;
    const std::uint64_t order = channel(member).arrivals[*found].order;
    if (!source.is_none() && channel(source).arrivals[index].order < order) continue;
    source = member;
    index = *found;
  }
  if (source.is_none()) return {};
  return hand_over(receive, source, take_out(channel(source), index));
}

Status Mailbox::hand_over(RecvOperation& receive, GroupRank source, const Arrival& arrival) {
  if (arrival.own != nullptr) {
    QCCL_TRY(receive.take(source, arrival.envelope, arrival.own->data()));
    arrival.own->note_taken();
    return {};
  }
  if (arrival.frame.peer.is_none()) {
    return receive.take_in_slices(source, arrival.envelope, arrival.header.sequence, arrival.header.slice);
  }
  const std::byte* data = arrival.frame.bytes.data() + wire::kHeaderBytes + wire::kEnvelopeBytes;
  Status taken = receive.take(source, arrival.envelope, data);
  frame_sender_.consume(arrival.header, arrival.frame);
  return taken;
}

Status Mailbox::keep_or_take(GroupRank source, const Arrival& arrival) {
  if (RecvOperation* receive = match(source, arrival.envelope.tag)) return hand_over(*receive, source, arrival);
  channel(source).arrivals.push_back(arrival);
  return {};
}

Status Mailbox::on_own(SendOperation& send) {
  return keep_or_take(group_.rank, {.envelope = send.envelope(), .own = &send, .order = ++arrivals_});
}

namespace {

// What is wrong with a message frame, or "".
std::string fault_of(const FrameHeader& header, const wire::Envelope& envelope, std::uint64_t expected_number) {
  if (header.sequence != expected_number) {
    return fmt::format("message {} where {} was expected", header.sequence, expected_number);
  }
  const std::uint64_t inline_bytes = header.payload_bytes - wire::kEnvelopeBytes;
  const bool has_data = (header.phase & kEagerFlag) != 0;
  // Compared by division, so that no count can overflow.
  const std::uint64_t element = element_bytes(envelope.type);
  const bool fits = element > 0 && inline_bytes % element == 0 && inline_bytes / element == envelope.count;
  if (has_data ? !fits || header.slice != 0 : inline_bytes != 0 || header.slice == 0) {
    return fmt::format("a message of {} elements with {} bytes in its frame", envelope.count, inline_bytes);
  }
  return {};
}

}  // namespace

Status Mailbox::on_message(GroupRank source, const FrameHeader& header, const ReceivedFrame& frame) {
  const auto envelope = wire::decode_envelope(frame.bytes.subspan(wire::kHeaderBytes));
  Channel& from = channel(source);
  std::string fault = envelope.ok() ? fault_of(header, envelope.value(), from.next_arrival) : envelope.error().message;
  const bool has_data = (header.phase & kEagerFlag) != 0;
  if (fault.empty() && !has_data && waiting_in(from) >= kMaxUnanswered + kEagerBudget / wire::kHeaderBytes) {
    fault = "more messages than it may without an answer";
  }
  if (!fault.empty()) {
    frame_sender_.consume(header, frame);
    return Failure(ErrorKind::corrupt_data, fmt::format("rank {} sent {}", group_.world_rank(source), fault));
  }
  ++from.next_arrival;
  Arrival arrival{.header = header, .envelope = envelope.value(), .frame = frame, .order = ++arrivals_};
  if (!has_data) {
    frame_sender_.consume(header, frame);
    arrival.frame = {};
  }
  return keep_or_take(source, arrival);
}

void Mailbox::drop_frames() {
  for (Channel& from : channels_) {
    for (std::size_t i = from.first; i < from.arrivals.size(); ++i) {
      const Arrival& arrival = from.arrivals[i];
      if (!arrival.frame.peer.is_none()) frame_sender_.consume(arrival.header, arrival.frame);
    }
    from.arrivals.clear();
    from.first = 0;
  }
}

Mailbox& mailbox_of(Group& group, FrameSender& frame_sender) {
  if (group.mailbox == nullptr) group.mailbox = std::make_unique<Mailbox>(group, frame_sender);
  return *group.mailbox;
}

}  // namespace qccl::engine
