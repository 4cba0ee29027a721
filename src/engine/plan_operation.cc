#include "engine/plan_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace qccl::engine {
namespace {

using plan::Step;
using plan::StepKind;
using wire::FrameHeader;
using wire::FrameKind;

bool sends(StepKind kind) {
  return kind == StepKind::send_input || kind == StepKind::send_sum || kind == StepKind::send_result ||
         kind == StepKind::forward;
}

bool receives(StepKind kind) { return kind == StepKind::recv_reduce || kind == StepKind::recv_copy; }

plan::Request request_of(const Post& post, int world, std::uint64_t slice_elements) {
  const Call& call = post.call;
  return {.collective = call.collective,
          .algorithm = call.algorithm,
          .world = world,
          .root = call.root,
          .count = call.count,
          .bucket_size = post.codec != nullptr ? post.codec->bucket_size() : 1,
          .slice_elements = slice_elements,
          .compressed = post.codec != nullptr,
          .counts = call.counts,
          .hosts = call.hosts};
}

}  // namespace

PlanOperation::PlanOperation(const Group& group, std::uint64_t sequence, Post post, TimePoint posted, Outlet& outlet,
                             BufferPool& pool, const PlanOptions& options)
    : Operation(group, sequence, std::move(post), posted, outlet, pool),
      slice_elements_(options.slice_elements),
      seed_(options.seed),
      role_(plan::make_role(request_of(post_, group.world(), slice_elements_), group.rank)),
      math_(math_context()) {
  build_streams();
  unused_inbound_ = inbound_;
  unused_outbound_ = outbound_;
  begin();
}

MathContext PlanOperation::math_context() const {
  return {.type = post_.call.type,
          .op = post_.call.op,
          .world = group_.world(),
          .codec = post_.codec.get(),
          .pool = &pool_,
          .premul_factor = post_.premul_factor,
          .rank = group_.rank,
          .keys = DrawKeys(seed_, post_.draw_counter.value_or(0))};
}

void PlanOperation::begin() {
  for (LaneRun& run : lanes_) {
    run.slice = 0;
    begin_slice(run);
  }
  unfinished_lanes_ = lanes_.size();
  grants_dirty_ = true;
  sends_announced_ = false;
}

void PlanOperation::restart(std::uint64_t sequence, Post post, TimePoint posted) {
  Operation::restart(sequence, std::move(post), posted);
  math_ = math_context();
  inbound_ = unused_inbound_;
  outbound_ = unused_outbound_;
  begin();
}

std::uint64_t PlanOperation::stream_slices(std::uint64_t elements) const {
  return elements == 0 ? 1 : slice_count(elements, slice_elements_);
}

// A stream without elements (a barrier's) has one slice without payload.
std::size_t PlanOperation::slice_length(std::uint64_t elements, std::uint64_t slice) const {
  return elements == 0 ? 0 : static_cast<std::size_t>(slice_range(elements, slice_elements_, slice).count);
}

std::size_t PlanOperation::payload_limit(std::uint64_t elements, bool raw) const {
  return raw ? elements * math_.element_size() : math_.payload_limit(elements);
}

bool PlanOperation::is_eager(std::uint64_t elements, bool raw) const {
  if (stream_slices(elements) > kWindow) return false;
  std::uint64_t bytes = 0;
  for (std::uint64_t slice = 0; slice < stream_slices(elements); ++slice) {
    bytes += payload_limit(slice_length(elements, slice), raw);
  }
  return bytes <= kEagerStreamBytes;
}

void PlanOperation::build_streams() {
  lanes_.reserve(role_.lanes.size());
  for (const plan::Lane& lane : role_.lanes) {
    LaneRun run;
    run.lane = &lane;
    run.slices = stream_slices(lane.count);
    for (const Step& step : lane.steps) add_streams(run, step);
    if (!run.finishes) run.reduced_parts = LaneMath::kSumStays;
    lanes_.push_back(std::move(run));
  }
  choose_announcements();
}

void PlanOperation::add_streams(LaneRun& run, const Step& step) {
  const plan::Lane& lane = *run.lane;
  run.streams.push_back(sends(step.kind) ? outbound_.size() : inbound_.size());
  if (step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce) ++run.reduced_parts;
  run.finishes |= step.kind == StepKind::finish;
  const bool eager = is_eager(lane.count, step.raw);
  if (receives(step.kind)) {
    inbound_.push_back({.peer = step.peers[0],
                        .phase = step.phase,
                        .chunk = lane.chunk,
                        .slices = run.slices,
                        .eager = eager,
                        .expected_bytes = payload_limit(lane.count, step.raw)});
  } else if (sends(step.kind)) {
    for (const int peer : step.peers) {
      outbound_.push_back(
          {.peer = peer, .phase = step.phase, .chunk = lane.chunk, .slices = run.slices, .eager = eager});
    }
  }
}

// Every rank sends something to each peer of its streams at once, so that calls that differ meet;
// otherwise ranks that name different roots would wait for each other until their deadline. A peer
// that gets neither eager input nor a grant gets a grant that it does not need, or a request.
void PlanOperation::choose_announcements() {
  std::vector<char> addressed(static_cast<std::size_t>(group_.world()));
  const auto mark = [&](int peer) { return std::exchange(addressed[static_cast<std::size_t>(peer)], 1) != 0; };
  for (const LaneRun& run : lanes_) {
    const Step& first = run.lane->steps.front();
    if (first.kind != StepKind::send_input || run.lane->after >= 0 || !is_eager(run.lane->count, first.raw)) continue;
    for (const int peer : first.peers) mark(peer);
  }
  for (const Inbound& stream : inbound_) {
    if (!stream.eager) mark(stream.peer);
  }
  for (Inbound& stream : inbound_) stream.announced = stream.eager && !mark(stream.peer);
  for (Outbound& stream : outbound_) stream.announced = !stream.eager && !mark(stream.peer);
}

PlanOperation::Inbound* PlanOperation::inbound(int peer, std::uint16_t phase, std::uint32_t chunk) {
  for (Inbound& stream : inbound_) {
    if (stream.peer == peer && stream.phase == phase && stream.chunk == chunk) return &stream;
  }
  return nullptr;
}

PlanOperation::Outbound* PlanOperation::outbound(int peer, std::uint16_t phase, std::uint32_t chunk) {
  for (Outbound& stream : outbound_) {
    if (stream.peer == peer && stream.phase == phase && stream.chunk == chunk) return &stream;
  }
  return nullptr;
}

// In all_to_all frames name the length of their piece (plan/exchange.cc), which each of the two
// ranks was told by its caller.
Status PlanOperation::unexpected(int peer, const FrameHeader& header, const std::string& what) const {
  if (post_.call.collective == Collective::all_to_all && !post_.call.counts.empty()) {
    const int world_peer = group_.world_rank(peer);
    const int self = group_.world_rank(group_.rank);
    const bool sends = header.kind == FrameKind::data || header.kind == FrameKind::request;
    const std::size_t own = static_cast<std::size_t>(peer + (sends ? group_.world() : 0));
    if (static_cast<std::uint32_t>(post_.call.counts[own]) != header.chunk) {
      return Failure(
          ErrorKind::misuse,
          fmt::format("rank {} {} {} elements, but rank {} {} {}", world_peer,
                      sends ? fmt::format("sends rank {}", self) : fmt::format("receives from rank {}", self),
                      header.chunk, self, sends ? "receives" : "sends", post_.call.counts[own]));
    }
  }
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("rank {} {} phase {} chunk {} slice {}, which {} does not expect now", peer, what,
                             header.phase & ~kEagerFlag, header.chunk, header.slice, post_.call.describe()));
}

// ---- frames from peers

Status PlanOperation::on_data(int peer, const wire::FrameHeader& header, const ReceivedFrame& frame) {
  Held held{frame, frame.bytes.subspan(wire::kHeaderBytes), (header.phase & kEagerFlag) != 0};
  const auto phase = static_cast<std::uint16_t>(header.phase & ~kEagerFlag);
  Inbound* stream = inbound(peer, phase, header.chunk);
  const bool fits = stream != nullptr && stream->received == header.slice && stream->received < stream->slices &&
                    stream->received - stream->consumed < kWindow &&
                    (held.eager ? stream->eager : stream->received < stream->granted);
  if (!fits) {
    release(held);
    return unexpected(peer, header, "sent");
  }
  stream->received_bytes += held.payload.size();
  stream->held[stream->received++ % kWindow] = held;
  return {};
}

Status PlanOperation::on_grant(int peer, const wire::FrameHeader& header) {
  Outbound* stream = outbound(peer, header.phase, header.chunk);
  if (stream == nullptr || header.slice > stream->slices) return unexpected(peer, header, "granted");
  stream->granted = std::max<std::uint64_t>(stream->granted, header.slice);
  return {};
}

Status PlanOperation::on_request(int peer, const wire::FrameHeader& header) {
  Inbound* stream = inbound(peer, header.phase, header.chunk);
  if (stream == nullptr) return unexpected(peer, header, "asked for leave to send");
  stream->eager = false;  // from now on by grants
  grants_dirty_ = true;
  return {};
}

PlanOperation::Held* PlanOperation::next_held(Inbound& from) {
  return from.consumed < from.received ? &from.held[from.consumed % kWindow] : nullptr;
}

PlanOperation::Held PlanOperation::take_held(Inbound& from) {
  grants_dirty_ = true;
  return std::exchange(from.held[from.consumed++ % kWindow], Held{});
}

void PlanOperation::release(Held& held) {
  if (held.frame.peer < 0) return;
  if (held.eager) outlet_.note_eager_consumed(held.frame.peer, held.payload.size());
  outlet_.transport().release(held.frame);
  held = Held{};
}

void PlanOperation::drop_frames() {
  for (Inbound& stream : inbound_) {
    for (Held& held : stream.held) release(held);
  }
  for (LaneRun& run : lanes_) {
    release(run.pending);
    release(run.received);
  }
}

// ---- frames to peers

wire::FrameHeader PlanOperation::header(FrameKind kind, std::uint16_t phase, std::uint32_t chunk,
                                        std::uint64_t slice) const {
  return {.kind = kind,
          .phase = phase,
          .group = group_.id,
          .sequence = sequence_,
          .fingerprint = fingerprint_,
          .chunk = chunk,
          .slice = static_cast<std::uint32_t>(slice)};
}

bool PlanOperation::announce() {
  const bool announced = announce_sends();
  return announce_grants() || announced;
}

bool PlanOperation::announce_sends() {
  if (sends_announced_) return false;
  sends_announced_ = true;
  bool moved = false;
  for (Outbound& stream : outbound_) {
    if (!stream.announced || stream.requested) continue;
    stream.requested = outlet_.send_control(group_.world_rank(stream.peer),
                                            header(FrameKind::request, stream.phase, stream.chunk, stream.sent));
    sends_announced_ &= stream.requested;
    moved |= stream.requested;
  }
  return moved;
}

bool PlanOperation::needs_grant(const Inbound& stream) const {
  if (stream.granted == stream.slices) return false;
  return !stream.eager || (stream.announced && stream.received == 0);
}

// Tells senders how far they may go, half a window at a time.
bool PlanOperation::announce_grants() {
  if (!grants_dirty_) return false;
  grants_dirty_ = false;
  bool moved = false;
  for (Inbound& stream : inbound_) {
    if (!needs_grant(stream)) continue;
    const std::uint64_t target = std::min<std::uint64_t>(stream.slices, stream.consumed + kWindow);
    if (target - stream.granted < kWindow / 2 && target != stream.slices) continue;
    if (outlet_.send_control(group_.world_rank(stream.peer),
                             header(FrameKind::grant, stream.phase, stream.chunk, target))) {
      stream.granted = target;
      moved = true;
    } else {
      grants_dirty_ = true;
    }
  }
  return moved;
}

bool PlanOperation::may_send(Outbound& to, std::size_t bytes, bool& eagerly) {
  eagerly = false;
  if (to.sent < to.granted) return true;
  if (!to.eager || to.requested) return false;
  const int peer = group_.world_rank(to.peer);
  if (outlet_.eager_room(peer, bytes)) return eagerly = true;
  to.requested = outlet_.send_control(peer, header(FrameKind::request, to.phase, to.chunk, to.sent));
  return false;
}

// What is encoded already, or is so once for several uses; empty: write_payload() makes it.
ConstBytes PlanOperation::ready_payload(LaneRun& run, const Step& step) {
  if (post_.size_only) return {};
  if (step.kind == StepKind::forward) return run.received.payload;
  if (math_.codec == nullptr || step.raw) return {};
  if (step.kind == StepKind::send_result) return run.math.encoded();
  const bool is_used_again = step.peers.size() > 1 || run.lane->steps.back().quantized;
  if (step.kind != StepKind::send_input || !is_used_again) return {};
  return run.math.encode_once(math_, input_slice(run), slice_length(run));
}

std::size_t PlanOperation::write_payload(LaneRun& run, const Step& step, Bytes payload) {
  if (post_.size_only) return payload.size();
  const std::size_t elements = slice_length(run);
  if (step.kind == StepKind::send_sum) return run.math.encode_sum(math_, elements, payload);
  const std::byte* source = step.kind == StepKind::send_input ? input_slice(run) : output_slice(run);
  return step.raw ? run.math.copy_raw(math_, source, elements, payload)
                  : run.math.encode(math_, source, elements, payload);
}

// Sends the lane's current slice.
bool PlanOperation::send_slice(LaneRun& run, const Step& step, Outbound& to) {
  const ConstBytes ready = ready_payload(run, step);
  const bool is_ready = ready.data() != nullptr;
  const std::size_t limit = is_ready ? ready.size() : payload_limit(slice_length(run), step.raw);
  bool eagerly = false;
  if (!may_send(to, limit, eagerly)) return false;
  const int peer = group_.world_rank(to.peer);
  const Bytes payload = outlet_.begin(peer, limit, TrafficClass::data);
  if (payload.data() == nullptr) return false;
  const std::size_t bytes = is_ready ? ready.size() : write_payload(run, step, payload);
  if (is_ready && bytes > 0) std::memcpy(payload.data(), ready.data(), bytes);
  const auto phase = static_cast<std::uint16_t>(to.phase | (eagerly ? kEagerFlag : 0));
  if (eagerly) outlet_.note_eager_sent(peer, bytes);
  outlet_.finish(header(FrameKind::data, phase, to.chunk, to.sent), bytes);
  ++to.sent;
  return true;
}

PlanOperation::Outcome PlanOperation::send(LaneRun& run, const Step& step) {
  const std::size_t first = run.streams[run.step];
  for (; run.served < step.peers.size(); ++run.served) {
    if (!send_slice(run, step, outbound_[first + run.served])) return Outcome::blocked;
  }
  run.served = 0;
  release(run.received);
  return Outcome::done;
}

// ---- slices

std::size_t PlanOperation::slice_length(const LaneRun& run) const { return slice_length(run.lane->count, run.slice); }

const std::byte* PlanOperation::input_slice(LaneRun& run) {
  if (post_.input == nullptr) return nullptr;
  const std::byte* at = post_.input + (run.lane->input_begin + run.slice * slice_elements_) * math_.element_size();
  return run.math.own_input(math_, at, slice_length(run));
}

std::byte* PlanOperation::output_slice(LaneRun& run) {
  if (run.lane->scratch) return run.finishes ? run.math.scratch(math_) : nullptr;
  if (post_.output == nullptr) return nullptr;
  return post_.output + (run.lane->output_begin + run.slice * slice_elements_) * math_.element_size();
}

bool PlanOperation::is_requantized(const LaneRun& run) const {
  return math_.codec != nullptr && run.lane->steps.back().kind == StepKind::send_result;
}

Result<PlanOperation::Outcome> PlanOperation::local_reduce(LaneRun& run, const Step& step) {
  if (step.quantized && math_.codec != nullptr) {
    QCCL_TRY(run.math.add_quantized_input(math_, input_slice(run), slice_length(run)));
  } else {
    run.math.add_input(math_, input_slice(run), output_slice(run), slice_length(run));
  }
  release(run.pending);
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::recv_reduce(LaneRun& run, const Step& step) {
  Inbound& from = inbound_[run.streams[run.step]];
  if (next_held(from) == nullptr) return Outcome::blocked;
  Held held = take_held(from);
  const Status added = run.math.add_payload(math_, held.payload, output_slice(run), slice_length(run), step.raw);
  release(run.pending);
  if (added.ok() && run.math.keeps_part()) {
    run.pending = held;
  } else {
    release(held);
  }
  if (!added.ok()) return Failure(added.error());
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::recv_copy(LaneRun& run, const Step& step) {
  static_cast<void>(step);
  Inbound& from = inbound_[run.streams[run.step]];
  if (next_held(from) == nullptr) return Outcome::blocked;
  Held held = take_held(from);
  Status copied;
  if (!run.lane->scratch) copied = run.math.decode(math_, held.payload, output_slice(run), slice_length(run));
  const bool forwards = run.step + 1 < run.lane->steps.size();
  if (copied.ok() && forwards) {
    run.received = held;
  } else {
    release(held);
  }
  if (!copied.ok()) return Failure(copied.error());
  return Outcome::done;
}

Status PlanOperation::finish_slice(LaneRun& run) {
  const bool requantizes = is_requantized(run);
  std::byte* output = requantizes && run.lane->scratch ? nullptr : output_slice(run);
  return run.math.finish(math_, output, slice_length(run), requantizes);
}

Status PlanOperation::local_copy(LaneRun& run, const Step& step) {
  const std::size_t elements = slice_length(run);
  if (step.quantized && math_.codec != nullptr) {
    return run.math.decode(math_, run.math.encode_once(math_, input_slice(run), elements), output_slice(run), elements);
  }
  const std::size_t bytes = elements * math_.element_size();
  if (bytes > 0 && output_slice(run) != input_slice(run)) std::memmove(output_slice(run), input_slice(run), bytes);
  return {};
}

PlanOperation::Outcome PlanOperation::take_size_only(LaneRun& run, const Step& step) {
  if (sends(step.kind)) return send(run, step);
  if (!receives(step.kind)) return Outcome::done;
  Inbound& from = inbound_[run.streams[run.step]];
  if (next_held(from) == nullptr) return Outcome::blocked;
  Held held = take_held(from);
  release(held);
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::take(LaneRun& run, const Step& step) {
  if (post_.size_only) return take_size_only(run, step);
  switch (step.kind) {
    case StepKind::send_input:
    case StepKind::send_sum:
    case StepKind::send_result:
    case StepKind::forward: return send(run, step);
    case StepKind::local_reduce: return local_reduce(run, step);
    case StepKind::recv_reduce: return recv_reduce(run, step);
    case StepKind::recv_copy: return recv_copy(run, step);
    case StepKind::local_copy: QCCL_TRY(local_copy(run, step)); break;
    case StepKind::finish: QCCL_TRY(finish_slice(run)); break;
  }
  return Outcome::done;
}

// In the sum of several ranks' tensors an element has the place that it has in each of them.
void PlanOperation::begin_slice(LaneRun& run) {
  run.math.begin(run.reduced_parts, run.lane->input_begin + run.slice * slice_elements_);
}

void PlanOperation::end_slice(LaneRun& run) {
  run.step = 0;
  ++run.slice;
  begin_slice(run);
  if (run.slice == run.slices) {
    run.math.release_buffers();
    --unfinished_lanes_;
  }
}

bool PlanOperation::may_begin(const LaneRun& run) const {
  if (run.lane->after < 0) return true;
  const LaneRun& before = lanes_[static_cast<std::size_t>(run.lane->after)];
  return before.slice == before.slices;
}

// Runs steps until one blocks or a slice is complete.
Result<bool> PlanOperation::advance_lane(LaneRun& run) {
  bool moved = false;
  while (run.slice < run.slices) {
    const auto before = run.served;
    auto outcome = take(run, run.lane->steps[run.step]);
    if (!outcome.ok()) return outcome.failure();
    moved |= run.served != before;
    if (*outcome == Outcome::blocked) return moved;
    moved = true;
    if (++run.step == run.lane->steps.size()) {
      end_slice(run);
      return true;
    }
  }
  return moved;
}

Result<bool> PlanOperation::advance() {
  bool moved = announce();
  for (LaneRun& run : lanes_) {
    if (!may_begin(run)) continue;
    auto lane_moved = advance_lane(run);
    if (!lane_moved.ok()) return lane_moved.failure();
    moved |= *lane_moved;
  }
  if (moved) announce_grants();
  return moved;
}

// Peers that could have sent and did not, in the earliest phase that lacks something: later phases
// wait for those themselves.
std::vector<int> PlanOperation::late_senders() const {
  std::vector<int> late;
  int phase = std::numeric_limits<int>::max();
  for (const Inbound& stream : inbound_) {
    const std::uint64_t allowed = stream.eager ? stream.slices : stream.granted;
    if (stream.received >= allowed || stream.phase > phase) continue;
    if (stream.phase < phase) late.clear();
    phase = stream.phase;
    late.push_back(stream.peer);
  }
  return late;
}

bool PlanOperation::lacks(int member) const {
  const auto outstanding_in = [member](const Inbound& stream) {
    return stream.peer == member && stream.received < stream.slices;
  };
  const auto outstanding_out = [member](const Outbound& stream) {
    return stream.peer == member && stream.sent < stream.slices;
  };
  return std::any_of(inbound_.begin(), inbound_.end(), outstanding_in) ||
         std::any_of(outbound_.begin(), outbound_.end(), outstanding_out);
}

Waiting PlanOperation::waiting() const {
  Waiting result;
  result.peers = late_senders();
  for (const Inbound& stream : inbound_) {
    result.received_bytes += stream.received_bytes;
    result.expected_bytes += stream.expected_bytes;
  }
  const bool only_sends = result.peers.empty();
  for (const Outbound& stream : outbound_) {
    if (only_sends && stream.sent < stream.slices) result.peers.push_back(stream.peer);
  }
  std::sort(result.peers.begin(), result.peers.end());
  result.peers.erase(std::unique(result.peers.begin(), result.peers.end()), result.peers.end());
  return result;
}

}  // namespace qccl::engine
