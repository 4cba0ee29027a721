#include "engine/frames/frame_sender.h"

#include <utility>

#include "base/log.h"
#include "wire/frame.h"

namespace qccl::engine {

using wire::kHeaderBytes;

namespace {

// Includes the header, which bounds the number of small frames.
std::uint32_t eager_cost(std::size_t payload_bytes) { return static_cast<std::uint32_t>(payload_bytes + kHeaderBytes); }

// How many bytes of a payload are not the caller's data.
std::size_t described_bytes(wire::FrameKind kind, ConstBytes payload) {
  if (kind == wire::FrameKind::data || kind == wire::FrameKind::message_data) return 0;
  return kind == wire::FrameKind::message ? wire::envelope_bytes(payload) : payload.size();
}

}  // namespace

bool EagerBudgets::has_room(WorldRank peer, std::size_t payload_bytes) const {
  const Peer& to = peers_[peer.index()];
  return to.sent - to.returned + eager_cost(payload_bytes) <= budget_;
}

void EagerBudgets::note_sent(WorldRank peer, std::size_t payload_bytes) {
  Peer& to = peers_[peer.index()];
  to.sent += eager_cost(payload_bytes);
  QCCL_CHECK(to.sent - to.returned <= budget_);
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

// The header's sizes and sums, and what it counts for.
void FrameSender::complete(wire::FrameHeader& header, WorldRank peer, ConstBytes payload) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  if (checksum_ && !payload.empty() && !transport_.is_local(peer)) {
    header.payload_checksum = wire::payload_checksum(payload);
  }
  header.eager_consumed = eager_.report(peer);
  last_sent_[peer.index()] = now_;
  const std::size_t described = described_bytes(header.kind, payload);
  counters_.header_bytes += kHeaderBytes + described;
  counters_.payload_bytes += payload.size() - described;
}

void FrameSender::finish(Reservation&& room, wire::FrameHeader header, ConstBytes payload) {
  complete(header, room.peer(), payload);
  wire::encode_header(header, room.bytes().data());
  if (payload.data() == payload_room(room).data()) {
    transport_.commit(std::move(room), kHeaderBytes + payload.size(), {});
  } else {
    transport_.commit(std::move(room), kHeaderBytes, payload);
  }
}

bool FrameSender::send_control(WorldRank peer, wire::FrameHeader header, ConstBytes payload) {
  Reservation room = begin(peer, payload.size(), TrafficClass::control);
  if (!room) return false;
  room.append(kHeaderBytes, payload);
  const ConstBytes copy = payload_room(room);
  finish(std::move(room), header, copy);
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
