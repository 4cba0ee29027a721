#include "engine/collective/streams.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

// ---- building

std::size_t Streams::add_inbound(const StreamOptions& options) {
  inbound_.push_back({.options = options, .first_held = held_.size()});
  held_.resize(held_.size() + static_cast<std::size_t>(std::min<std::uint64_t>(options.slices, kWindow)));
  return inbound_.size() - 1;
}

std::size_t Streams::add_outbound(const StreamOptions& options) {
  outbound_.push_back({.options = options});
  return outbound_.size() - 1;
}

// Every rank sends something to each peer of its streams at once, so that calls that differ meet; otherwise ranks that
// name different roots would wait for each other until their deadline. A peer that gets neither eager input nor a grant
// gets a grant that it does not need, or a request. Whoever is sent to before it is waited for needs nothing: plans
// have no deadlock, so that of ranks that wait in the same call one waits for a rank that is not in it, and has told
// it.
void Streams::complete(std::vector<char> addressed) {
  const auto mark = [&](GroupRank peer) { return std::exchange(addressed[peer.index()], 1) != 0; };
  for (const Inbound& stream : inbound_) {
    if (!stream.options.eager) mark(stream.options.peer);
  }
  for (Inbound& stream : inbound_) {
    stream.announced = stream.options.eager && !stream.options.told && !mark(stream.options.peer);
  }
  for (Outbound& stream : outbound_) stream.announced = !stream.options.eager && !mark(stream.options.peer);
  inbound_addresses_ = addresses(inbound_);
  outbound_addresses_ = addresses(outbound_);
}

template <class Stream>
std::vector<Streams::Address> Streams::addresses(const std::vector<Stream>& streams) {
  std::vector<Address> sorted;
  sorted.reserve(streams.size());
  for (const Stream& stream : streams) {
    const StreamOptions& options = stream.options;
    sorted.push_back({options.peer, options.phase, options.chunk, static_cast<std::uint32_t>(sorted.size())});
  }
  std::sort(sorted.begin(), sorted.end(), [](const Address& a, const Address& b) { return a.key() < b.key(); });
  return sorted;
}

// IndexSet::kNone: there is none.
std::size_t Streams::find(const std::vector<Address>& addresses, GroupRank peer, std::uint16_t phase,
                          std::uint32_t chunk) {
  const auto key = std::tuple(peer, phase, chunk);
  const auto found =
      std::lower_bound(addresses.begin(), addresses.end(), key,
                       [](const Address& address, const auto& wanted) { return address.key() < wanted; });
  return found != addresses.end() && found->key() == key ? found->index : IndexSet::kNone;
}

void Streams::begin(std::uint64_t sequence, std::uint64_t fingerprint) {
  sequence_ = sequence;
  fingerprint_ = fingerprint;
  sends_announced_ = false;
  placed_ = 0;
  due_grants_.reset(inbound_.size());
  for (std::size_t i = 0; i < inbound_.size(); ++i) {
    Inbound& stream = inbound_[i];
    stream.needs_credit = !stream.options.eager;
    stream.received = stream.consumed = stream.granted = stream.placed = stream.received_bytes = 0;
    if (needs_grant(stream)) due_grants_.insert(i);
  }
  for (Outbound& stream : outbound_) {
    stream.requested = false;
    stream.sent = stream.granted = 0;
  }
}

// ---- frames from peers

std::size_t Streams::find_inbound(GroupRank peer, const FrameHeader& header) const {
  return find(inbound_addresses_, peer, static_cast<std::uint16_t>(header.phase & ~kEagerFlag), header.chunk);
}

std::optional<std::size_t> Streams::on_data(GroupRank peer, const FrameHeader& header, const ReceivedFrame& frame) {
  HeldSlice held{frame, frame.payload(), (header.phase & kEagerFlag) != 0};
  if (frame.is_placed() && placed_ > 0) --placed_;
  const std::size_t index = find_inbound(peer, header);
  Inbound* stream = index == IndexSet::kNone ? nullptr : &inbound_[index];
  const bool fits = stream != nullptr && stream->received == header.slice &&
                    stream->received < stream->options.slices && stream->received - stream->consumed < kWindow &&
                    (held.eager ? !stream->needs_credit : stream->received < stream->granted);
  if (!fits) {
    release(held);
    return std::nullopt;
  }
  stream->received_bytes += held.payload.size();
  held_[stream->first_held + stream->received++ % kWindow] = held;
  return stream->options.lane;
}

// A slice gets a place once, and only one that is still wanted: nothing is written where all has come.
std::optional<Streams::Coming> Streams::coming(GroupRank peer, const FrameHeader& header) const {
  const std::size_t index = find_inbound(peer, header);
  if (index == IndexSet::kNone) return std::nullopt;
  const Inbound& stream = inbound_[index];
  const bool is_wanted = header.slice >= std::max(stream.received, stream.placed) && header.slice < stream.granted;
  if (!is_wanted) return std::nullopt;
  return Coming{stream.options.lane, index};
}

void Streams::note_placed(const Coming& coming, const FrameHeader& header) {
  inbound_[coming.inbound].placed = std::uint64_t{header.slice} + 1;
  ++placed_;
}

std::optional<std::size_t> Streams::on_grant(GroupRank peer, const FrameHeader& header) {
  const std::size_t index = find(outbound_addresses_, peer, header.phase, header.chunk);
  if (index == IndexSet::kNone || header.slice > outbound_[index].options.slices) return std::nullopt;
  Outbound& stream = outbound_[index];
  stream.granted = std::max<std::uint64_t>(stream.granted, header.slice);
  return stream.options.lane;
}

std::optional<std::size_t> Streams::on_request(GroupRank peer, const FrameHeader& header) {
  const std::size_t index = find(inbound_addresses_, peer, header.phase, header.chunk);
  if (index == IndexSet::kNone) return std::nullopt;
  inbound_[index].needs_credit = true;  // from now on
  due_grants_.insert(index);
  return inbound_[index].options.lane;
}

// ---- receiving

HeldSlice Streams::take_slice(std::size_t inbound) {
  Inbound& stream = inbound_[inbound];
  HeldSlice& held = held_[stream.first_held + stream.consumed++ % kWindow];
  if (needs_grant(stream)) due_grants_.insert(inbound);
  return std::exchange(held, HeldSlice{});
}

void Streams::release(HeldSlice& slice) {
  if (slice.frame.peer.is_none()) return;
  if (slice.eager) frame_sender_.note_eager_consumed(slice.frame.peer, slice.payload.size());
  frame_sender_.transport().release(slice.frame);
  slice = HeldSlice{};
}

void Streams::drop_frames() {
  for (HeldSlice& held : held_) release(held);
}

// ---- frames to peers

FrameHeader Streams::header(FrameKind kind, const StreamOptions& stream, std::uint64_t slice) const {
  return {.kind = kind,
          .phase = stream.phase,
          .group = group_.id,
          .sequence = sequence_,
          .fingerprint = fingerprint_,
          .chunk = stream.chunk,
          .slice = static_cast<std::uint32_t>(slice)};
}

bool Streams::announce() {
  const bool announced = announce_sends();
  return announce_grants() || announced;
}

bool Streams::announce_sends() {
  if (sends_announced_) return false;
  sends_announced_ = true;
  bool moved = false;
  for (Outbound& stream : outbound_) {
    if (!stream.announced || stream.requested) continue;
    const bool has_gone = request(stream);
    sends_announced_ &= has_gone;
    moved |= has_gone;
  }
  return moved;
}

bool Streams::request(Outbound& stream) {
  stream.requested = frame_sender_.send_control(group_.world_rank(stream.options.peer),
                                                header(FrameKind::request, stream.options, stream.sent));
  return stream.requested;
}

bool Streams::needs_grant(const Inbound& stream) const {
  if (stream.granted == stream.options.slices) return false;
  return stream.needs_credit || (stream.announced && stream.received == 0);
}

// Tells senders how far they may go, half a window at a time.
bool Streams::announce_grants() {
  bool moved = false;
  for (std::size_t i = due_grants_.next(0); i != IndexSet::kNone; i = due_grants_.next(i + 1)) {
    Inbound& stream = inbound_[i];
    const std::uint64_t target = std::min<std::uint64_t>(stream.options.slices, stream.consumed + kWindow);
    const bool is_worth_it = target - stream.granted >= kWindow / 2 || target == stream.options.slices;
    if (needs_grant(stream) && is_worth_it) {
      const WorldRank peer = group_.world_rank(stream.options.peer);
      if (!frame_sender_.send_control(peer, header(FrameKind::grant, stream.options, target))) continue;
      stream.granted = target;
      moved = true;
    }
    due_grants_.erase(i);
  }
  return moved;
}

Streams::SendPermission Streams::may_send(std::size_t outbound, std::size_t bytes) {
  Outbound& stream = outbound_[outbound];
  if (stream.sent < stream.granted) return SendPermission::granted;
  if (!stream.options.eager || stream.requested) return SendPermission::awaited;
  if (frame_sender_.eager_room(group_.world_rank(stream.options.peer), bytes)) return SendPermission::eager;
  return request(stream) ? SendPermission::awaited : SendPermission::none;
}

Bytes Streams::begin_slice(std::size_t outbound, std::size_t bytes) {
  return frame_sender_.begin(group_.world_rank(outbound_[outbound].options.peer), bytes, TrafficClass::data);
}

void Streams::finish_slice(std::size_t outbound, ConstBytes payload, bool eagerly) {
  Outbound& stream = outbound_[outbound];
  FrameHeader head = header(FrameKind::data, stream.options, stream.sent);
  if (eagerly) {
    head.phase |= kEagerFlag;
    frame_sender_.note_eager_sent(group_.world_rank(stream.options.peer), payload.size());
  }
  frame_sender_.finish_with(head, payload);
  ++stream.sent;
}

// ---- for reports

// Peers that could have sent and did not, in the earliest phase that lacks something: later phases
// wait for those themselves.
std::vector<GroupRank> Streams::late_senders() const {
  std::vector<GroupRank> late;
  int phase = std::numeric_limits<int>::max();
  for (const Inbound& stream : inbound_) {
    const std::uint64_t allowed = stream.needs_credit ? stream.granted : stream.options.slices;
    if (stream.received >= allowed || stream.options.phase > phase) continue;
    if (stream.options.phase < phase) late.clear();
    phase = stream.options.phase;
    late.push_back(stream.options.peer);
  }
  return late;
}

bool Streams::lacks(GroupRank member) const {
  const auto outstanding_in = [member](const Inbound& stream) {
    return stream.options.peer == member && stream.received < stream.options.slices;
  };
  const auto outstanding_out = [member](const Outbound& stream) {
    return stream.options.peer == member && stream.sent < stream.options.slices;
  };
  return std::any_of(inbound_.begin(), inbound_.end(), outstanding_in) ||
         std::any_of(outbound_.begin(), outbound_.end(), outstanding_out);
}

Waiting Streams::waiting() const {
  Waiting result;
  result.peers = late_senders();
  for (const Inbound& stream : inbound_) {
    result.received_bytes += stream.received_bytes;
    result.expected_bytes += stream.options.expected_bytes;
  }
  const bool only_sends = result.peers.empty();
  for (const Outbound& stream : outbound_) {
    if (only_sends && stream.sent < stream.options.slices) result.peers.push_back(stream.options.peer);
  }
  std::sort(result.peers.begin(), result.peers.end());
  result.peers.erase(std::unique(result.peers.begin(), result.peers.end()), result.peers.end());
  return result;
}

}  // namespace qccl::engine
