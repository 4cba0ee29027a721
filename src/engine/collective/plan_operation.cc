#include "engine/collective/plan_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace qccl::engine {
namespace {

static_assert((plan::kMaxPhase & kEagerFlag) == 0);

using plan::Step;
using plan::StepKind;
using wire::FrameHeader;
using wire::FrameKind;

}  // namespace

PlanOperation::PlanOperation(const Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                             FrameSender& frame_sender, ScratchPool& pool, std::unique_ptr<Compute> compute)
    : Operation(group, sequence, std::move(arguments), posted, frame_sender, pool),
      compute_(std::move(compute)),
      streams_(group, frame_sender) {
  build_lanes();
  begin();
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
  compute_->begin(arguments_);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].slice = 0;
    begin_slice(i);
    awake_.insert(i);
  }
  unfinished_lanes_ = lanes_.size();
  streams_.begin(sequence_, fingerprint());
}

void PlanOperation::restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
  Operation::restart(sequence, std::move(arguments), posted);
  begin();
}

bool PlanOperation::is_eager(std::uint64_t elements, bool raw) const {
  if (plan().slice_count(elements) > kWindow) return false;
  std::uint64_t bytes = 0;
  for (std::uint64_t slice = 0; slice < plan().slice_count(elements); ++slice) {
    bytes += plan().payload_limit(plan().slice_length(elements, slice), raw);
  }
  return bytes <= kEagerStreamBytes;
}

void PlanOperation::build_lanes() {
  lanes_.reserve(plan().schedule().lanes.size());
  std::vector<char> addressed(static_cast<std::size_t>(group_.world()));
  for (const plan::Lane& lane : plan().schedule().lanes) {
    LaneProgress run;
    run.lane = &lane;
    run.slices = plan().slice_count(lane.count);
    for (const Step& step : lane.steps) add_streams(run, step);
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
  run.streams.push_back(plan::sends(step.kind) ? streams_.outbound_count() : streams_.inbound_count());
  if (!plan::receives(step.kind) && !plan::sends(step.kind)) return;
  StreamOptions stream{.peer = GroupRank(step.peers[0]),
                       .phase = step.phase,
                       .chunk = lane.chunk,
                       .lane = lanes_.size(),
                       .slices = run.slices,
                       .eager = is_eager(lane.count, step.raw),
                       .expected_bytes = plan().payload_limit(lane.count, step.raw)};
  if (plan::receives(step.kind)) {
    const auto sends_to_it = [&](const Step& earlier) {
      return plan::sends(earlier.kind) &&
             std::find(earlier.peers.begin(), earlier.peers.end(), stream.peer.value()) != earlier.peers.end();
    };
    stream.told = std::any_of(lane.steps.data(), &step, sends_to_it);
    streams_.add_inbound(stream);
    return;
  }
  for (const int peer : step.peers) {
    stream.peer = GroupRank(peer);
    streams_.add_outbound(stream);
  }
}

// In all_to_all frames name the length of their piece, which each of the two ranks was told by its caller.
Status PlanOperation::unexpected(GroupRank peer, const FrameHeader& header, const std::string& what) const {
  const WorldRank world_peer = group_.world_rank(peer);
  const auto phase = static_cast<std::uint16_t>(header.phase & ~kEagerFlag);
  if (call().collective == Collective::all_to_all && !call().counts.empty()) {
    const WorldRank self = group_.world_rank(group_.rank);
    const bool sends = header.kind == FrameKind::data || header.kind == FrameKind::request;
    const std::size_t own = peer.index() + (sends ? group_.ranks.size() : 0);
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

Status PlanOperation::on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) {
  return wake(streams_.on_data(peer, header, frame), peer, header, "sent");
}

// What a lane would copy to the output now anyway may come there by itself; so may later slices, if that is what it
// begins with.
std::byte* PlanOperation::find_destination(GroupRank peer, const FrameHeader& header) {
  const auto coming = streams_.coming(peer, header);
  if (!coming) return nullptr;
  const LaneProgress& run = lanes_[coming->lane];
  if (run.slice == run.slices || !may_begin(run)) return nullptr;
  const bool is_first = run.lane->steps.front().kind == StepKind::recv_copy;
  const std::size_t at = is_first ? 0 : run.step;
  const Step& step = run.lane->steps[at];
  const bool is_next =
      step.kind == StepKind::recv_copy && run.streams[at] == coming->inbound && (is_first || header.slice == run.slice);
  const std::size_t bytes = plan().slice_length(run.lane->count, header.slice) * element_bytes(call().type);
  const bool is_raw = plan().codec() == nullptr || step.raw;
  if (!is_next || !is_raw || header.payload_bytes != bytes) return nullptr;
  std::byte* const destination = compute_->find_destination(coming->lane, header.slice);
  if (destination != nullptr) streams_.note_placed(*coming, header);
  return destination;
}

Status PlanOperation::on_grant(GroupRank peer, const wire::FrameHeader& header) {
  return wake(streams_.on_grant(peer, header), peer, header, "granted");
}

Status PlanOperation::on_request(GroupRank peer, const wire::FrameHeader& header) {
  return wake(streams_.on_request(peer, header), peer, header, "asked for leave to send");
}

Status PlanOperation::wake(std::optional<std::size_t> lane, GroupRank peer, const wire::FrameHeader& header,
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

// Sends the lane's current slice.
PlanOperation::StepStatus PlanOperation::send_slice(std::size_t lane, std::size_t stream) {
  LaneProgress& run = lanes_[lane];
  const GroupRank peer(run.lane->steps[run.step].peers[run.served]);
  const Outgoing outgoing = compute_->outgoing(lane, run.step, peer);
  const Streams::SendPermission permission = streams_.may_send(stream, outgoing.limit);
  if (permission == Streams::SendPermission::awaited) return StepStatus::waits;
  if (permission == Streams::SendPermission::none) return StepStatus::no_room;
  const Bytes room = streams_.begin_slice(stream, outgoing.limit);
  if (room.data() == nullptr) return StepStatus::no_room;
  const bool is_ready = outgoing.ready.data() != nullptr;
  const ConstBytes payload = is_ready ? outgoing.ready : room.first(compute_->write(lane, run.step, peer, room));
  streams_.finish_slice(stream, payload, permission == Streams::SendPermission::eager);
  note_sent(plan().slice_length(run.lane->count, run.slice) * element_bytes(call().type));
  return StepStatus::done;
}

PlanOperation::StepStatus PlanOperation::send(std::size_t lane) {
  LaneProgress& run = lanes_[lane];
  const std::size_t first = run.streams[run.step];
  for (; run.served < run.lane->steps[run.step].peers.size(); ++run.served) {
    const StepStatus status = send_slice(lane, first + run.served);
    if (status != StepStatus::done) return status;
  }
  run.served = 0;
  streams_.release(run.received);
  return StepStatus::done;
}

// ---- slices

Result<PlanOperation::StepStatus> PlanOperation::receive(std::size_t lane) {
  LaneProgress& run = lanes_[lane];
  const Step& step = run.lane->steps[run.step];
  const std::size_t from = run.streams[run.step];
  if (!streams_.has_slice(from)) return StepStatus::waits;
  run.current = streams_.take_slice(from);
  const Status received = compute_->receive(lane, run.step, run.current.payload);
  if (step.kind == StepKind::recv_reduce) streams_.release(run.pending);
  keep_or_release(run, step, received.ok() && compute_->keeps_part(lane));
  if (!received.ok()) return Failure(received.error());
  return StepStatus::done;
}

// The slice that was just received: its frame may be needed by a later step.
void PlanOperation::keep_or_release(LaneProgress& run, const Step& step, bool keeps_part) {
  const bool forwards = step.kind == StepKind::recv_copy && run.step + 1 < run.lane->steps.size();
  if (forwards) {
    run.received = std::exchange(run.current, {});
  } else if (step.kind == StepKind::recv_reduce && keeps_part) {
    run.pending = std::exchange(run.current, {});
  } else {
    streams_.release(run.current);
  }
}

Result<PlanOperation::StepStatus> PlanOperation::take(std::size_t lane) {
  LaneProgress& run = lanes_[lane];
  const StepKind kind = run.lane->steps[run.step].kind;
  if (plan::sends(kind)) return send(lane);
  if (plan::receives(kind)) return receive(lane);
  QCCL_TRY(compute_->local(lane, run.step));
  if (kind == StepKind::local_reduce) streams_.release(run.pending);
  return StepStatus::done;
}

void PlanOperation::begin_slice(std::size_t lane) { compute_->begin_slice(lane, lanes_[lane].slice); }

void PlanOperation::end_slice(std::size_t lane) {
  LaneProgress& run = lanes_[lane];
  run.step = 0;
  ++run.slice;
  begin_slice(lane);
  if (run.slice < run.slices) return;
  compute_->end_lane(lane);
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
    auto status = take(lane);
    if (!status.ok()) return status.failure();
    result.moved |= run.served != before;
    if (*status == StepStatus::no_room) result.starved_by = GroupRank(step.peers[run.served]);
    if (*status != StepStatus::done) return result;
    result.moved = true;
    if (++run.step < run.lane->steps.size()) continue;
    end_slice(lane);
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
      if (advanced->starved_by == GroupRank(peer)) break;
      starved_.pop(peer);
      if (!advanced->starved_by.is_none()) starved_.push(advanced->starved_by.index(), lane);
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
    if (!advanced->starved_by.is_none()) starved_.push(advanced->starved_by.index(), lane);
  }
  if (moved) streams_.announce_grants();
  return moved;
}

}  // namespace qccl::engine
