#include "engine/frame_sender.h"

#include <cstring>
#include <utility>

#include "wire/frame.h"

namespace qccl::engine {

using wire::kHeaderBytes;

namespace {

// Includes the header, which bounds the number of small frames.
std::uint32_t eager_cost(std::size_t payload_bytes) { return static_cast<std::uint32_t>(payload_bytes + kHeaderBytes); }

// How many bytes of a payload are not the caller's data.
std::size_t described_bytes(wire::FrameKind kind, std::size_t payload_bytes) {
  if (kind == wire::FrameKind::data || kind == wire::FrameKind::message_data) return 0;
  return kind == wire::FrameKind::message ? wire::kEnvelopeBytes : payload_bytes;
}

}  // namespace

FrameSender::FrameSender(Transport& transport, int world, bool checksum)
    : transport_(transport), checksum_(checksum), peers_(static_cast<std::size_t>(world)) {}

Bytes FrameSender::begin(WorldRank peer, std::size_t max_payload, TrafficClass traffic) {
  frame_ = transport_.reserve(peer, kHeaderBytes + max_payload, traffic);
  if (frame_.data() == nullptr) return {};
  target_ = peer;
  return frame_.subspan(kHeaderBytes, max_payload);
}

void FrameSender::finish(wire::FrameHeader header, ConstBytes payload) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  if (checksum_ && !payload.empty() && !transport_.is_local(target_)) {
    header.payload_checksum = wire::payload_checksum(payload);
  }
  Peer& to = peer(target_);
  header.eager_consumed = to.eager_consumed;
  to.eager_reported = to.eager_consumed;
  to.last_sent = now_;
  const Bytes frame = std::exchange(frame_, {});
  wire::encode_header(header, frame.data());
  const std::size_t described = described_bytes(header.kind, payload.size());
  counters_.header_bytes += kHeaderBytes + described;
  counters_.payload_bytes += payload.size() - described;
  if (payload.data() != frame.data() + kHeaderBytes) {
    if (transport_.commit_gathered(kHeaderBytes, payload)) return;
    if (!payload.empty()) std::memcpy(frame.data() + kHeaderBytes, payload.data(), payload.size());
  }
  transport_.commit(kHeaderBytes + payload.size());
}

void FrameSender::abandon() {
  if (!std::exchange(frame_, {}).empty()) transport_.commit(0);
}

bool FrameSender::send_control(WorldRank peer, wire::FrameHeader header, ConstBytes payload) {
  const Bytes room = begin(peer, payload.size(), TrafficClass::control);
  if (room.data() == nullptr) return false;
  if (!payload.empty()) std::memcpy(room.data(), payload.data(), payload.size());
  finish(header, room);
  return true;
}

bool FrameSender::eager_room(WorldRank rank, std::size_t payload_bytes) const {
  const Peer& to = peer(rank);
  return to.eager_sent - to.eager_returned + eager_cost(payload_bytes) <= kEagerBudget;
}

void FrameSender::note_eager_sent(WorldRank rank, std::size_t payload_bytes) {
  peer(rank).eager_sent += eager_cost(payload_bytes);
}

void FrameSender::note_eager_consumed(WorldRank rank, std::size_t payload_bytes) {
  Peer& from = peer(rank);
  from.eager_consumed += eager_cost(payload_bytes);
  reports_due_ |= from.eager_consumed - from.eager_reported > kEagerBudget / 4;
}

void FrameSender::consume(const wire::FrameHeader& header, const ReceivedFrame& frame) {
  const bool has_budget = header.kind == wire::FrameKind::data || header.kind == wire::FrameKind::message;
  if (has_budget && (header.phase & kEagerFlag) != 0) note_eager_consumed(frame.peer, header.payload_bytes);
  transport_.release(frame);
}

void FrameSender::note_eager_returned(WorldRank rank, std::uint32_t consumed) {
  // Frames of a peer arrive in order, so the newest report is the largest. A report of more than was sent is false and
  // is ignored.
  Peer& from = peer(rank);
  if (from.eager_sent - consumed <= kEagerBudget) from.eager_returned = consumed;
}

bool FrameSender::send_reports() {
  if (!reports_due_) return false;
  reports_due_ = false;
  bool sent = false;
  for (WorldRank rank(0); rank.index() < peers_.size(); ++rank) {
    const Peer& to = peer(rank);
    if (to.eager_consumed - to.eager_reported <= kEagerBudget / 4) continue;
    const bool has_gone = send_control(rank, {.kind = wire::FrameKind::heartbeat});
    sent |= has_gone;
    reports_due_ |= !has_gone;
  }
  return sent;
}

}  // namespace qccl::engine
