#include "engine/collective/plan_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/copy.h"
#include "plan/cost/step_work.h"

namespace qccl::engine {
namespace {

static_assert((plan::kMaxPhase & kEagerFlag) == 0);

using plan::Step;
using plan::StepKind;
using wire::FrameHeader;
using wire::FrameKind;

bool sends(StepKind kind) {
  return kind == StepKind::send_input || kind == StepKind::send_sum || kind == StepKind::send_result ||
         kind == StepKind::forward;
}

// What comes of this rank's input in the lane.
bool encodes(const Step& step) { return sends(step.kind) && step.kind != StepKind::forward && !step.raw; }

bool receives(StepKind kind) { return kind == StepKind::recv_reduce || kind == StepKind::recv_copy; }

}  // namespace

PlanOperation::PlanOperation(const Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                             FrameSender& frame_sender, BufferPool& pool, std::uint64_t seed)
    : Operation(group, sequence, std::move(arguments), posted, frame_sender, pool),
      slice_elements_(plan().slice_elements()),
      seed_(seed),
      math_(math_context()),
      streams_(group, frame_sender) {
  build_lanes();
  begin();
}

MathContext PlanOperation::math_context() const {
  return {.type = call().type,
          .op = call().op,
          .world = group_.world(),
          .codec = plan().codec(),
          .pool = &pool_,
          .premul_factor = arguments_.premul_factor,
          .rank = group_.rank,
          .keys = DrawKeys(seed_, arguments_.draw_counter.value_or(0)),
          .residuals = arguments_.feedback != nullptr ? arguments_.feedback->residual() : nullptr};
}

PlanOperation::~PlanOperation() {
  end_feedback();
  drop_frames();
}

void PlanOperation::retire() {
  end_feedback();
  Operation::retire();
}

void PlanOperation::end_feedback() {
  if (arguments_.feedback != nullptr) arguments_.feedback->end(finished());
  arguments_.feedback.reset();
}

void PlanOperation::begin() {
  awake_.reset(lanes_.size());
  starved_.reset(static_cast<std::size_t>(group_.world()), lanes_.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].slice = 0;
    begin_slice(lanes_[i]);
    awake_.insert(i);
  }
  unfinished_lanes_ = lanes_.size();
  streams_.begin(sequence_, fingerprint());
}

void PlanOperation::restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
  Operation::restart(sequence, std::move(arguments), posted);
  math_ = math_context();
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

void PlanOperation::build_lanes() {
  lanes_.reserve(plan().schedule().lanes.size());
  std::vector<char> addressed(static_cast<std::size_t>(group_.world()));
  for (const plan::Lane& lane : plan().schedule().lanes) {
    LaneProgress run;
    run.lane = &lane;
    run.slices = stream_slices(lane.count);
    for (const Step& step : lane.steps) add_streams(run, step);
    if (!run.finishes) run.reduced_parts = LaneMath::kSumStays;
    run.math.set_encodes(std::any_of(lane.steps.begin(), lane.steps.end(), encodes));
    if (lane.after >= 0) lanes_[static_cast<std::size_t>(lane.after)].followers.push_back(lanes_.size());
    lanes_.push_back(std::move(run));
    const Step& first = lane.steps.front();
    if (first.kind != StepKind::send_input || lane.after >= 0 || !is_eager(lane.count, first.raw)) continue;
    for (const int peer : first.peers) addressed[static_cast<std::size_t>(peer)] = 1;
  }
  streams_.complete(std::move(addressed));
}

void PlanOperation::add_streams(LaneProgress& run, const Step& step) {
  const plan::Lane& lane = *run.lane;
  run.streams.push_back(sends(step.kind) ? streams_.outbound_count() : streams_.inbound_count());
  if (step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce) ++run.reduced_parts;
  run.finishes |= step.kind == StepKind::finish;
  if (!receives(step.kind) && !sends(step.kind)) return;
  StreamOptions stream{.peer = step.peers[0],
                       .phase = step.phase,
                       .chunk = lane.chunk,
                       .lane = lanes_.size(),
                       .slices = run.slices,
                       .eager = is_eager(lane.count, step.raw),
                       .expected_bytes = payload_limit(lane.count, step.raw)};
  if (receives(step.kind)) {
    const auto sends_to_it = [&](const Step& earlier) {
      return sends(earlier.kind) &&
             std::find(earlier.peers.begin(), earlier.peers.end(), stream.peer) != earlier.peers.end();
    };
    stream.told = std::any_of(lane.steps.data(), &step, sends_to_it);
    streams_.add_inbound(stream);
    return;
  }
  for (const int peer : step.peers) {
    stream.peer = peer;
    streams_.add_outbound(stream);
  }
}

// In all_to_all frames name the length of their piece, which each of the two ranks was told by its caller.
Status PlanOperation::unexpected(int peer, const FrameHeader& header, const std::string& what) const {
  const int world_peer = group_.world_rank(peer);
  const auto phase = static_cast<std::uint16_t>(header.phase & ~kEagerFlag);
  if (call().collective == Collective::all_to_all && !call().counts.empty()) {
    const int self = group_.world_rank(group_.rank);
    const bool sends = header.kind == FrameKind::data || header.kind == FrameKind::request;
    const std::size_t own = static_cast<std::size_t>(peer + (sends ? group_.world() : 0));
    const std::uint64_t length = plan::length_of_piece(phase, header.chunk);
    if (call().counts[own] != length) {
      return Failure(ErrorKind::misuse, fmt::format("rank {} {} {} elements, but rank {} {} {}", world_peer,
                                                    sends ? fmt::format("sends rank {}", self)
                                                          : fmt::format("receives from rank {}", self),
                                                    length, self, sends ? "receives" : "sends", call().counts[own]));
    }
  }
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("rank {} {} phase {} chunk {} slice {}, which {} does not expect now", world_peer, what,
                             phase, header.chunk, header.slice, call().describe()));
}

// ---- frames from peers

Status PlanOperation::on_data(int peer, const wire::FrameHeader& header, const ReceivedFrame& frame) {
  return wake(streams_.on_data(peer, header, frame), peer, header, "sent");
}

// What a lane would copy to the output now anyway may come there by itself; so may later slices, if that is what it
// begins with.
std::byte* PlanOperation::place(int peer, const FrameHeader& header) {
  const auto coming = streams_.coming(peer, header);
  if (!coming || arguments_.size_only || arguments_.output == nullptr) return nullptr;
  const LaneProgress& run = lanes_[coming->lane];
  if (run.lane->scratch || run.slice == run.slices || !may_begin(run)) return nullptr;
  const bool is_first = run.lane->steps.front().kind == StepKind::recv_copy;
  const std::size_t at = is_first ? 0 : run.step;
  const Step& step = run.lane->steps[at];
  const bool is_next =
      step.kind == StepKind::recv_copy && run.streams[at] == coming->inbound && (is_first || header.slice == run.slice);
  const std::size_t bytes = slice_length(run.lane->count, header.slice) * math_.element_size();
  if (!is_next || !is_raw(step) || header.payload_bytes != bytes) return nullptr;
  streams_.note_placed(*coming, header);
  return output_slice(run, header.slice);
}

Status PlanOperation::on_grant(int peer, const wire::FrameHeader& header) {
  return wake(streams_.on_grant(peer, header), peer, header, "granted");
}

Status PlanOperation::on_request(int peer, const wire::FrameHeader& header) {
  return wake(streams_.on_request(peer, header), peer, header, "asked for leave to send");
}

Status PlanOperation::wake(std::optional<std::size_t> lane, int peer, const wire::FrameHeader& header,
                           const char* what) {
  if (!lane) return unexpected(peer, header, what);
  if (!starved_.has(*lane)) awake_.insert(*lane);
  return {};
}

void PlanOperation::drop_frames() {
  streams_.drop_frames();
  for (LaneProgress& run : lanes_) {
    streams_.release(run.current);
    streams_.release(run.pending);
    streams_.release(run.received);
  }
}

// ---- frames to peers

// What can be sent from where it lies: data as it is, what is encoded already, or is so once for several uses; empty:
// write_payload() makes it.
ConstBytes PlanOperation::ready_payload(LaneProgress& run, const Step& step) {
  if (arguments_.size_only) return {};
  if (step.kind == StepKind::forward) return run.received.payload;
  if (is_raw(step)) {
    const std::size_t elements = slice_length(run);
    if (step.kind == StepKind::send_sum) return run.math.raw_sum(math_, elements);
    if (step.kind == StepKind::send_input) return run.math.raw_input(math_, input_slice(run), elements);
    return {output_slice(run), elements * math_.element_size()};
  }
  if (step.kind == StepKind::send_result) return run.math.encoded();
  const bool is_used_again = step.peers.size() > 1 || run.lane->steps.back().quantized;
  if (step.kind != StepKind::send_input || !is_used_again) return {};
  return run.math.encode_once(math_, input_slice(run), slice_length(run));
}

std::size_t PlanOperation::write_payload(LaneProgress& run, const Step& step, Bytes payload) {
  if (arguments_.size_only) {
    if (run.served == 0) note_work(run);  // encoded once for all peers
    return payload.size();
  }
  const std::size_t elements = slice_length(run);
  if (step.kind == StepKind::send_sum) return run.math.encode_sum(math_, elements, payload, step.quantized);
  const std::byte* source = step.kind == StepKind::send_input ? input_slice(run) : output_slice(run);
  return run.math.encode(math_, source, elements, payload);
}

// Sends the lane's current slice.
PlanOperation::Outcome PlanOperation::send_slice(LaneProgress& run, const Step& step, std::size_t stream) {
  const int peer = step.peers[run.served];
  const bool says_only = step.kind != StepKind::send_sum && is_mapped(step, peer);
  const ConstBytes ready = says_only ? ConstBytes() : ready_payload(run, step);
  const bool is_ready = says_only || ready.data() != nullptr;
  const std::size_t limit = is_ready ? ready.size() : payload_limit(slice_length(run), step.raw);
  const Streams::SendPermission leave = streams_.may_send(stream, limit);
  if (leave == Streams::SendPermission::awaited) return Outcome::waits;
  if (leave == Streams::SendPermission::none) return Outcome::no_room;
  const Bytes payload = streams_.begin_slice(stream, limit);
  if (payload.data() == nullptr) return Outcome::no_room;
  if (says_only && step.kind != StepKind::send_input) {
    kernels::copy(mapped_slice(run, peer, run.lane->output_begin), output_slice(run),
                  slice_length(run) * math_.element_size());
  }
  const std::size_t bytes = is_ready ? ready.size() : write_payload(run, step, payload);
  streams_.finish_slice(stream, is_ready ? ready : payload.first(bytes), leave == Streams::SendPermission::eager);
  note_sent(slice_length(run) * math_.element_size());
  return Outcome::done;
}

PlanOperation::Outcome PlanOperation::send(LaneProgress& run, const Step& step) {
  const std::size_t first = run.streams[run.step];
  for (; run.served < step.peers.size(); ++run.served) {
    const Outcome outcome = send_slice(run, step, first + run.served);
    if (outcome != Outcome::done) return outcome;
  }
  run.served = 0;
  streams_.release(run.received);
  return Outcome::done;
}

// ---- slices

bool PlanOperation::is_mapped(const Step& step, int peer) const {
  if (arguments_.region == nullptr || !is_raw(step)) return false;
  return arguments_.region->of_member[static_cast<std::size_t>(peer)] != nullptr;
}

// Of the peer's buffer, from element `begin` of the lane's chunk on.
std::byte* PlanOperation::mapped_slice(const LaneProgress& run, int peer, std::uint64_t begin) const {
  return arguments_.region->of_member[static_cast<std::size_t>(peer)].get() + call().region_offset +
         slice_offset(begin, run.slice);
}

// An empty one of a neighbour's: its input where it lies, or its result, which it has written here.
ConstBytes PlanOperation::payload_of(LaneProgress& run, const Step& step, const HeldSlice& held) {
  const int peer = step.peers[0];
  if (!held.payload.empty() || !is_mapped(step, peer)) return held.payload;
  const std::size_t bytes = slice_length(run) * math_.element_size();
  if (step.kind == StepKind::recv_reduce) return {mapped_slice(run, peer, run.lane->input_begin), bytes};
  return run.lane->scratch ? ConstBytes() : ConstBytes(output_slice(run), bytes);
}

// Bytes into a buffer, where the lane's chunk begins at element `begin`.
std::size_t PlanOperation::slice_offset(std::uint64_t begin, std::uint64_t slice) const {
  return static_cast<std::size_t>(begin + slice * slice_elements_) * math_.element_size();
}

std::size_t PlanOperation::slice_length(const LaneProgress& run) const {
  return slice_length(run.lane->count, run.slice);
}

const std::byte* PlanOperation::input_slice(LaneProgress& run) {
  if (arguments_.input == nullptr) return nullptr;
  const std::byte* at = arguments_.input + slice_offset(run.lane->input_begin, run.slice);
  return run.math.own_input(math_, at, slice_length(run));
}

std::byte* PlanOperation::output_slice(LaneProgress& run) {
  if (run.lane->scratch) return run.finishes ? run.math.scratch(math_) : nullptr;
  return arguments_.output == nullptr ? nullptr : output_slice(run, run.slice);
}

std::byte* PlanOperation::output_slice(const LaneProgress& run, std::uint64_t slice) const {
  return arguments_.output + slice_offset(run.lane->output_begin, slice);
}

bool PlanOperation::is_requantized(const LaneProgress& run) const {
  const Step& last = run.lane->steps.back();
  return math_.codec != nullptr && last.kind == StepKind::send_result && !last.raw;
}

Result<PlanOperation::Outcome> PlanOperation::local_reduce(LaneProgress& run, const Step& step) {
  if (step.quantized && math_.codec != nullptr) {
    QCCL_TRY(run.math.add_quantized_input(math_, input_slice(run), slice_length(run)));
  } else {
    run.math.add_input(math_, input_slice(run), output_slice(run), slice_length(run));
  }
  streams_.release(run.pending);
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::recv_reduce(LaneProgress& run, const Step& step) {
  const std::size_t from = run.streams[run.step];
  if (!streams_.has_slice(from)) return Outcome::waits;
  HeldSlice& held = run.current;
  held = streams_.take_slice(from);
  held.payload = payload_of(run, step, held);
  const Status added = run.math.add_payload(math_, held.payload, output_slice(run), slice_length(run), step.raw);
  streams_.release(run.pending);
  if (added.ok() && run.math.keeps_part()) {
    run.pending = std::exchange(held, {});
  } else {
    streams_.release(held);
  }
  if (!added.ok()) return Failure(added.error());
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::recv_copy(LaneProgress& run, const Step& step) {
  const std::size_t from = run.streams[run.step];
  if (!streams_.has_slice(from)) return Outcome::waits;
  HeldSlice& held = run.current;
  held = streams_.take_slice(from);
  held.payload = payload_of(run, step, held);
  Status copied;
  if (!run.lane->scratch) {
    copied = run.math.decode(math_, held.payload, output_slice(run), slice_length(run), step.raw);
  }
  const bool forwards = run.step + 1 < run.lane->steps.size();
  if (copied.ok() && forwards) {
    run.received = std::exchange(held, {});
  } else {
    streams_.release(held);
  }
  if (!copied.ok()) return Failure(copied.error());
  return Outcome::done;
}

Status PlanOperation::finish_slice(LaneProgress& run) {
  const bool requantizes = is_requantized(run);
  std::byte* output = requantizes && run.lane->scratch ? nullptr : output_slice(run);
  return run.math.finish(math_, output, slice_length(run), requantizes);
}

Status PlanOperation::local_copy(LaneProgress& run, const Step& step) {
  const std::size_t elements = slice_length(run);
  if (step.quantized && math_.codec != nullptr && !math_.codec->is_exact()) {
    return run.math.decode(math_, run.math.encode_once(math_, input_slice(run), elements), output_slice(run), elements);
  }
  const std::size_t bytes = elements * math_.element_size();
  if (output_slice(run) != input_slice(run)) kernels::copy(output_slice(run), input_slice(run), bytes);
  return {};
}

void PlanOperation::note_work(const LaneProgress& run) {
  if (arguments_.meter == nullptr) return;
  arguments_.meter->add(plan::work_of(*run.lane, run.step, math_.codec != nullptr), slice_length(run));
}

PlanOperation::Outcome PlanOperation::take_size_only(LaneProgress& run, const Step& step) {
  if (sends(step.kind)) return send(run, step);
  if (receives(step.kind)) {
    const std::size_t from = run.streams[run.step];
    if (!streams_.has_slice(from)) return Outcome::waits;
    HeldSlice held = streams_.take_slice(from);
    streams_.release(held);
  }
  note_work(run);
  return Outcome::done;
}

Result<PlanOperation::Outcome> PlanOperation::take(LaneProgress& run, const Step& step) {
  if (arguments_.size_only) return take_size_only(run, step);
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
void PlanOperation::begin_slice(LaneProgress& run) {
  run.math.begin(run.reduced_parts, run.lane->input_begin + run.slice * slice_elements_);
}

void PlanOperation::end_slice(LaneProgress& run) {
  run.step = 0;
  ++run.slice;
  begin_slice(run);
  if (run.slice < run.slices) return;
  run.math.release_buffers();
  --unfinished_lanes_;
  for (const std::size_t follower : run.followers) awake_.insert(follower);
}

bool PlanOperation::may_begin(const LaneProgress& run) const {
  if (run.lane->after < 0) return true;
  const LaneProgress& before = lanes_[static_cast<std::size_t>(run.lane->after)];
  return before.slice == before.slices;
}

// Runs steps until one can't be done or a slice is complete.
Result<PlanOperation::Advance> PlanOperation::advance_lane(std::size_t lane) {
  LaneProgress& run = lanes_[lane];
  Advance result;
  awake_.erase(lane);
  while (run.slice < run.slices && may_begin(run)) {
    const Step& step = run.lane->steps[run.step];
    const auto before = run.served;
    auto outcome = take(run, step);
    if (!outcome.ok()) return outcome.failure();
    result.moved |= run.served != before;
    if (*outcome == Outcome::no_room) result.starved_by = step.peers[run.served];
    if (*outcome != Outcome::done) return result;
    result.moved = true;
    if (++run.step < run.lane->steps.size()) continue;
    end_slice(run);
    if (run.slice < run.slices) awake_.insert(lane);
    return result;
  }
  return result;
}

// Lanes that found no room before: of each peer the first, and the next once that has got its own.
Result<bool> PlanOperation::advance_starved() {
  bool moved = false;
  for (std::size_t peer = starved_.next_peer(0); peer != LaneQueues::kNone; peer = starved_.next_peer(peer + 1)) {
    for (std::size_t lane = starved_.front(peer); lane != LaneQueues::kNone; lane = starved_.front(peer)) {
      auto advanced = advance_lane(lane);
      if (!advanced.ok()) return advanced.failure();
      moved |= advanced->moved;
      if (advanced->starved_by == static_cast<int>(peer)) break;
      starved_.pop(peer);
      if (advanced->starved_by >= 0) starved_.push(static_cast<std::size_t>(advanced->starved_by), lane);
    }
  }
  return moved;
}

Result<bool> PlanOperation::advance() {
  bool moved = streams_.announce();
  auto starved_moved = advance_starved();
  if (!starved_moved.ok()) return starved_moved.failure();
  moved |= *starved_moved;
  for (std::size_t lane = awake_.next(0); lane != IndexSet::kNone; lane = awake_.next(lane + 1)) {
    auto advanced = advance_lane(lane);
    if (!advanced.ok()) return advanced.failure();
    moved |= advanced->moved;
    if (advanced->starved_by >= 0) starved_.push(static_cast<std::size_t>(advanced->starved_by), lane);
  }
  if (moved) streams_.announce_grants();
  return moved;
}

}  // namespace qccl::engine
