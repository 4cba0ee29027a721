#include "engine/run/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace qccl::engine {

using wire::FrameHeader;

namespace {

template <class Operation>
Operation* first_of(const std::vector<Operation*>& operations, const auto& matches) {
  const auto found = std::ranges::find_if(operations, matches);
  return found == operations.end() ? nullptr : *found;
}

// Why a message frame is refused, or "".
std::string fault_of(const FrameHeader& header, const wire::Envelope& envelope, std::uint64_t expected_number) {
  if (header.sequence != expected_number) {
    return fmt::format("message {} where {} was expected", header.sequence, expected_number);
  }
  const std::uint64_t inline_bytes = header.payload_bytes - wire::envelope_bytes(envelope);
  const bool has_data = (header.phase & kEagerFlag) != 0;
  // Compared by division, so that no count can overflow.
  const std::uint64_t element = element_bytes(envelope.type);
  const bool fits = !envelope.compression.is_none() ||
                    (element > 0 && inline_bytes % element == 0 && inline_bytes / element == envelope.count);
  if (has_data ? !fits || header.slice != 0 : inline_bytes != 0 || header.slice == 0) {
    return fmt::format("a message of {} elements with {} bytes in its frame", envelope.count, inline_bytes);
  }
  return {};
}

}  // namespace

void UnmatchedEnvelopes::add(Arrival&& arrival) {
  Queue& its = queue(arrival.source);
  its.arrivals.push_back(std::move(arrival));
  its.arrivals.back().order = ++arrivals_;
}

std::optional<Arrival> UnmatchedEnvelopes::take(GroupRank source, int tag) {
  Queue* from = nullptr;
  std::size_t index = 0;
  const auto look_in = [&](Queue& queue) {
    const auto& arrivals = queue.arrivals;
    std::size_t at = queue.first;
    while (at < arrivals.size() && arrivals[at].envelope.tag != tag) ++at;
    if (at == arrivals.size() || (from != nullptr && from->arrivals[index].order < arrivals[at].order)) return;
    from = &queue;
    index = at;
  };
  if (source.is_none()) {
    std::ranges::for_each(queues_, look_in);
  } else {
    look_in(queue(source));
  }
  if (from == nullptr) return std::nullopt;
  auto& arrivals = from->arrivals;
  Arrival taken = std::move(arrivals[index]);
  if (index == from->first) {
    ++from->first;  // mostly: the list is shortened when half of it is gone
  } else {
    arrivals.erase(arrivals.begin() + static_cast<std::ptrdiff_t>(index));
  }
  if (from->first * 2 > arrivals.size()) {
    arrivals.erase(arrivals.begin(), arrivals.begin() + static_cast<std::ptrdiff_t>(std::exchange(from->first, 0)));
  }
  return taken;
}

Mailbox::Mailbox(const Group& group)
    : group_(group), channels_(static_cast<std::size_t>(group.world())), unmatched_(group.world()) {}

std::uint64_t Mailbox::add(SendOperation& send) {
  sends_.push_back(&send);
  return channel(send.to()).next_send++;
}

void Mailbox::remove(MessageOperation& operation) {
  std::erase(sends_, &operation);
  std::erase(receives_, &operation);
}

RecvOperation* Mailbox::receiver(GroupRank peer, std::uint64_t channel_number) {
  return first_of(receives_, [&](const RecvOperation* receive) {
    return receive->source() == peer && receive->channel_number() == channel_number;
  });
}

SendOperation* Mailbox::sender(GroupRank peer, std::uint64_t channel_number) {
  return first_of(sends_, [&](const SendOperation* send) {
    return send->to() == peer && send->channel_number() == channel_number;
  });
}

Status Mailbox::match_arrival(RecvOperation& receive) {
  const auto arrival = unmatched_.take(receive.wanted_source(), receive.tag());
  return arrival ? deliver(receive, *arrival) : Status();
}

Status Mailbox::deliver(RecvOperation& receive, const Arrival& arrival) {
  if (arrival.own != nullptr) {
    QCCL_TRY(receive.take_own(*arrival.own));
    arrival.own->note_taken();
    return {};
  }
  if (!arrival.frame) {
    return receive.take_in_slices(arrival.source, arrival.envelope, arrival.header.sequence, arrival.header.slice);
  }
  const ConstBytes data = arrival.frame.payload().subspan(wire::envelope_bytes(arrival.envelope));
  return receive.take(arrival.source, arrival.envelope, data);
}

Status Mailbox::deliver_or_keep(Arrival&& arrival) {
  RecvOperation* const receive = first_of(
      receives_, [&](const RecvOperation* each) { return each->matches(arrival.source, arrival.envelope.tag); });
  if (receive != nullptr) return deliver(*receive, arrival);
  unmatched_.add(std::move(arrival));
  return {};
}

Status Mailbox::on_own(SendOperation& send) {
  return deliver_or_keep({.source = group_.rank, .envelope = send.envelope(), .own = &send});
}

Status Mailbox::on_message(GroupRank source, Frame&& frame) {
  const FrameHeader header = frame.header();
  const auto envelope = wire::decode_envelope(frame.payload());
  Channel& from = channel(source);
  std::string fault = envelope.ok() ? fault_of(header, envelope.value(), from.next_arrival) : envelope.error().message;
  const bool has_data = (header.phase & kEagerFlag) != 0;
  if (fault.empty() && !has_data && unmatched_.count(source) >= kMaxUnanswered + kEagerBudget / wire::kHeaderBytes) {
    fault = "more messages than it may without an answer";
  }
  if (!fault.empty()) {
    return Failure(ErrorKind::corrupt_data, fmt::format("rank {} sent {}", group_.world_rank(source), fault));
  }
  ++from.next_arrival;
  Arrival arrival{.source = source, .header = header, .envelope = envelope.value()};
  if (has_data) arrival.frame = std::move(frame);
  return deliver_or_keep(std::move(arrival));
}

Mailbox& mailbox_of(Group& group) {
  if (group.mail == nullptr) group.mail = std::make_unique<Mailbox>(group);
  return *find_mailbox(group);
}

// Nothing else is a group's mail.
Mailbox* find_mailbox(const Group& group) { return static_cast<Mailbox*>(group.mail.get()); }

}  // namespace qccl::engine
