#include "engine/run/streams.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

InboundStreams::InboundStreams(const StreamList& streams, const Group& group, FrameSender& frame_sender)
    : streams_(streams), group_(group), frame_sender_(frame_sender), states_(streams.size()) {
  std::size_t held = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i].first_held = held;
    held += static_cast<std::size_t>(std::min(streams_[i].slices, streams_[i].window));
  }
  held_.resize(held);
  kept_.reserve(held);
}

// Something may still read the frames that it keeps.
InboundStreams::~InboundStreams() {
  for (HeldSlice& slice : kept_) slice.frame.forget();
}

void InboundStreams::begin(const FrameHeader& call) {
  call_ = call;
  placed_ = 0;
  due_grants_.reset(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i] = {.first_held = states_[i].first_held, .needs_credit = !streams_[i].is_eager()};
    if (needs_grant(i)) due_grants_.insert(i);
  }
}

std::size_t InboundStreams::find(GroupRank peer, const FrameHeader& header) const {
  return streams_.find(peer, static_cast<std::uint16_t>(header.phase & ~kEagerFlag), header.chunk);
}

std::optional<std::size_t> InboundStreams::on_data(GroupRank peer, Frame&& frame) {
  if (frame.is_placed() && placed_ > 0) --placed_;
  const std::size_t index = find(peer, frame.header());
  State* const state = index == StreamList::kNone ? nullptr : &states_[index];
  if (state == nullptr || !state->fits(streams_[index], frame.header(), frame.is_eager())) return std::nullopt;
  state->received_bytes += frame.payload().size();
  HeldSlice& free = slot(index, state->received++);
  QCCL_CHECK(!free.frame);
  free.frame = std::move(frame);
  return streams_[index].lane;
}

bool InboundStreams::State::fits(const Stream& stream, const FrameHeader& header, bool eager) const {
  if (header.slice != received || received - consumed >= stream.window) return false;
  if (received >= stream.slices) return false;
  if (!eager) return received < granted;
  return received < stream.eager_slices && !(stream.is_eager() && needs_credit);
}

std::optional<std::size_t> InboundStreams::on_request(GroupRank peer, const FrameHeader& header) {
  const std::size_t index = streams_.find(peer, header.phase, header.chunk);
  if (index == StreamList::kNone) return std::nullopt;
  states_[index].needs_credit = true;  // from now on
  due_grants_.insert(index);
  return streams_[index].lane;
}

std::optional<std::size_t> InboundStreams::find_placeable(GroupRank peer, const FrameHeader& header) const {
  const std::size_t index = find(peer, header);
  if (index == StreamList::kNone) return std::nullopt;
  const State& state = states_[index];
  const bool is_wanted = header.slice >= std::max(state.received, state.placed) && header.slice < state.granted;
  return is_wanted ? std::optional(index) : std::nullopt;
}

void InboundStreams::note_placed(std::size_t stream, const FrameHeader& header) {
  states_[stream].placed = std::uint64_t{header.slice} + 1;
  ++placed_;
}

HeldSlice InboundStreams::take_slice(std::size_t stream) {
  State& state = states_[stream];
  HeldSlice& slice = slot(stream, state.consumed++);
  QCCL_CHECK(state.consumed <= state.received && slice.frame);
  if (needs_grant(stream)) due_grants_.insert(stream);
  slice.stream = stream;
  slice.number = state.consumed - 1;
  return std::exchange(slice, {});
}

void InboundStreams::keep(HeldSlice& slice) {
  QCCL_CHECK(slice.frame && !slice.is_kept);
  slice.is_kept = true;
  ++states_[slice.stream].kept;
}

void InboundStreams::release_held(HeldSlice& slice) {
  if (slice.is_kept) kept_.push_back(std::exchange(slice, {}));
  slice = {};
}

void InboundStreams::drop_frames() {
  for (HeldSlice& slice : held_) release(slice);
}

bool InboundStreams::needs_grant(std::size_t stream) const {
  const State& state = states_[stream];
  if (state.granted == streams_[stream].slices) return false;
  return state.needs_credit || (streams_[stream].announces && state.received == 0);
}

bool InboundStreams::grant() {
  bool moved = false;
  for (std::size_t i = due_grants_.next(0); i != IndexSet::kNone; i = due_grants_.next(i + 1)) {
    State& state = states_[i];
    const Stream& stream = streams_[i];
    const std::uint64_t target = std::min(stream.slices, state.consumed - state.kept + stream.window);
    const bool is_worth_it =
        target > state.granted && (target - state.granted >= stream.least_grant || target == stream.slices);
    if (needs_grant(i) && is_worth_it) {
      QCCL_CHECK(target - (state.consumed - state.kept) <= stream.window);
      const WorldRank peer = group_.world_rank(stream.peer);
      if (!frame_sender_.send_control(peer, frame_header(call_, FrameKind::grant, stream, target))) continue;
      state.granted = target;
      moved = true;
    }
    due_grants_.erase(i);
  }
  return moved;
}

Waiting InboundStreams::waiting() const {
  Waiting result;
  int phase = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    const Stream& stream = streams_[i];
    result.received_bytes += state.received_bytes;
    result.expected_bytes += stream.payload_limit;
    const std::uint64_t allowed = state.needs_credit ? state.granted : stream.slices;
    if (state.received >= allowed || stream.phase > phase) continue;
    if (stream.phase < phase) result.peers.clear();
    phase = stream.phase;
    result.peers.push_back(stream.peer);
  }
  return result;
}

bool InboundStreams::lacks(GroupRank member) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (streams_[i].peer == member && states_[i].received < streams_[i].slices) return true;
  }
  return false;
}

using wire::FrameHeader;
using wire::FrameKind;

void OutboundStreams::begin(const FrameHeader& call) {
  call_ = call;
  has_announced_ = false;
  std::ranges::fill(states_, State{});
}

bool OutboundStreams::announce() {
  if (has_announced_) return false;
  has_announced_ = true;
  bool moved = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!streams_[i].announces || states_[i].requested) continue;
    const bool has_gone = request(i);
    has_announced_ &= has_gone;
    moved |= has_gone;
  }
  return moved;
}

bool OutboundStreams::request(std::size_t stream) {
  State& state = states_[stream];
  const FrameHeader header = frame_header(call_, FrameKind::request, streams_[stream], state.sent);
  return state.requested = frame_sender_.send_control(peer_of(stream), header);
}

std::optional<std::size_t> OutboundStreams::on_grant(GroupRank peer, const FrameHeader& header) {
  const std::size_t index = streams_.find(peer, header.phase, header.chunk);
  if (index == StreamList::kNone || header.slice > streams_[index].slices) return std::nullopt;
  states_[index].granted = std::max<std::uint64_t>(states_[index].granted, header.slice);
  return streams_[index].lane;
}

OutboundStreams::Permission OutboundStreams::may_send(std::size_t stream, std::size_t bytes) {
  const State& state = states_[stream];
  if (state.sent < state.granted) return Permission::granted;
  const Stream& sent = streams_[stream];
  if (state.sent >= sent.eager_slices || state.requested) return Permission::awaited;
  if (frame_sender_.eager().has_room(peer_of(stream), bytes)) return Permission::eager;
  if (!sent.is_eager()) return Permission::awaited;
  return request(stream) ? Permission::awaited : Permission::none;
}

void OutboundStreams::finish_slice(std::size_t stream, Reservation&& room, ConstBytes payload, bool eagerly) {
  State& state = states_[stream];
  QCCL_CHECK(state.sent < (eagerly ? streams_[stream].eager_slices : state.granted));
  FrameHeader header = frame_header(call_, FrameKind::data, streams_[stream], state.sent++);
  if (eagerly) {
    header.phase |= kEagerFlag;
    frame_sender_.eager().note_sent(peer_of(stream), payload.size());
  }
  frame_sender_.finish(std::move(room), header, payload);
}

std::vector<GroupRank> OutboundStreams::unfinished_peers() const {
  std::vector<GroupRank> peers;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].sent < streams_[i].slices) peers.push_back(streams_[i].peer);
  }
  return peers;
}

}  // namespace qccl::engine
