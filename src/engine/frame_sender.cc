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

bool EagerBudgets::has_room(WorldRank peer, std::size_t payload_bytes) const {
  const Peer& to = peers_[peer.index()];
  return to.sent - to.returned + eager_cost(payload_bytes) <= budget_;
}

void EagerBudgets::note_sent(WorldRank peer, std::size_t payload_bytes) {
  peers_[peer.index()].sent += eager_cost(payload_bytes);
}

void EagerBudgets::note_consumed(WorldRank peer, std::size_t payload_bytes) {
  peers_[peer.index()].consumed += eager_cost(payload_bytes);
  reports_due_ |= owes_report(peer);
}

// Frames of a peer arrive in order, so the newest report is the largest. A report of more than was sent is false and is
// ignored.
void EagerBudgets::note_returned(WorldRank peer, std::uint32_t consumed) {
  Peer& from = peers_[peer.index()];
  if (from.sent - consumed <= budget_) from.returned = consumed;
}

std::uint32_t EagerBudgets::report(WorldRank peer) {
  Peer& to = peers_[peer.index()];
  return to.reported = to.consumed;
}

bool EagerBudgets::owes_report(WorldRank peer) const {
  const Peer& to = peers_[peer.index()];
  return to.consumed - to.reported > budget_ / 4;
}

FrameSender::FrameSender(Transport& transport, int world, bool checksum)
    : transport_(transport),
      rooms_(transport.host_memory().rooms),
      checksum_(checksum),
      last_sent_(static_cast<std::size_t>(world)),
      eager_(world) {}

Bytes FrameSender::begin(WorldRank peer, std::size_t max_payload, TrafficClass traffic) {
  frame_ = transport_.reserve(peer, kHeaderBytes + max_payload, traffic);
  if (frame_.data() == nullptr) return {};
  target_ = peer;
  return frame_.subspan(kHeaderBytes, max_payload);
}

// The header's sizes and sums, and what it counts for.
void FrameSender::complete(wire::FrameHeader& header, WorldRank peer, ConstBytes payload) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  if (checksum_ && !payload.empty() && !transport_.is_local(peer)) {
    header.payload_checksum = wire::payload_checksum(payload);
  }
  header.eager_consumed = eager_.report(peer);
  last_sent_[peer.index()] = now_;
  const std::size_t described = described_bytes(header.kind, payload.size());
  counters_.header_bytes += kHeaderBytes + described;
  counters_.payload_bytes += payload.size() - described;
}

void FrameSender::finish(wire::FrameHeader header, ConstBytes payload) {
  complete(header, target_, payload);
  const Bytes frame = std::exchange(frame_, {});
  wire::encode_header(header, frame.data());
  if (payload.data() != frame.data() + kHeaderBytes) {
    if (transport_.commit_gathered(kHeaderBytes, payload)) return;
    if (!payload.empty()) std::memcpy(frame.data() + kHeaderBytes, payload.data(), payload.size());
  }
  transport_.commit(kHeaderBytes + payload.size());
}

Bytes FrameSender::hold(WorldRank peer, std::size_t max_payload) {
  const Bytes frame = rooms_ != nullptr ? rooms_->hold(peer, kHeaderBytes + max_payload) : Bytes{};
  return frame.data() == nullptr ? Bytes{} : frame.subspan(kHeaderBytes);
}

void FrameSender::finish_held(WorldRank peer, wire::FrameHeader header, Bytes room, std::size_t payload_bytes) {
  complete(header, peer, room.first(payload_bytes));
  const Bytes frame = frame_of(room);
  wire::encode_header(header, frame.data());
  rooms_->commit(peer, frame, kHeaderBytes + payload_bytes);
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

void FrameSender::consume(const wire::FrameHeader& header, const ReceivedFrame& frame) {
  const bool has_budget = header.kind == wire::FrameKind::data || header.kind == wire::FrameKind::message;
  if (has_budget && (header.phase & kEagerFlag) != 0) eager_.note_consumed(frame.peer, header.payload_bytes);
  transport_.release(frame);
}

bool FrameSender::send_reports() {
  if (!eager_.take_due()) return false;
  bool sent = false;
  for (WorldRank rank(0); rank.index() < last_sent_.size(); ++rank) {
    if (!eager_.owes_report(rank)) continue;
    const bool has_gone = send_control(rank, {.kind = wire::FrameKind::heartbeat});
    sent |= has_gone;
    if (!has_gone) eager_.set_due();
  }
  return sent;
}

}  // namespace qccl::engine
