#include "engine/run/plan_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace qccl::engine {
namespace {

using plan::Step;
using plan::StepKind;
using wire::FrameHeader;
using wire::FrameKind;

const char* verb(FrameKind kind) {
  if (kind == FrameKind::data) return "sent";
  return kind == FrameKind::grant ? "granted" : "asked to send";
}

}  // namespace

PlanOperation::PlanOperation(Group& group, FrameSender& frame_sender, const ExecutablePlan& plan,
                             std::unique_ptr<Compute> compute)
    : Operation(group, frame_sender),
      compute_(std::move(compute)),
      inbound_(plan.streams().inbound, group, frame_sender),
      outbound_(plan.streams().outbound, group, frame_sender) {
  lanes_.reserve(plan.schedule().lanes.size());
  for (const plan::Lane& lane : plan.schedule().lanes) {
    if (lane.after >= 0) lanes_[static_cast<std::size_t>(lane.after)].followers.push_back(lanes_.size());
    lanes_.push_back({.lane = &lane,
                      .first_streams = &plan.streams().first[lanes_.size()],
                      .followers = {},
                      .slices = plan.slice_count(lane.count)});
  }
  deferred_ = compute_->defer(inbound_, outbound_);
}

// A call that has not ended has no caller any more, whose memory it could write.
PlanOperation::~PlanOperation() {
  arguments_.kept = {};
  if (arguments_.feedback != nullptr) take_back();
  drop_frames();
}

void PlanOperation::begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
  Operation::begin(sequence, std::move(arguments), posted);
  compute_->begin(arguments_);
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].slice = 0;
    lanes_[lane].open = lanes_[lane].lane->after >= 0 ? 0 : lanes_[lane].slices;
    compute_->begin_slice(lane, 0);
  }
  scheduler_.begin(lanes_.size(), group_.ranks.size());
  const FrameHeader call{.group = group_.id, .sequence = sequence_, .fingerprint = fingerprint()};
  inbound_.begin(call);
  outbound_.begin(call);
}

void PlanOperation::park() {
  QCCL_CHECK(deferred_ == nullptr || deferred_->has_none());
  end_feedback(true);
  Operation::park();
}

void PlanOperation::take_back() {
  compute_->take_back();
  end_feedback(false);
}

void PlanOperation::end_feedback(bool well) {
  if (arguments_.feedback != nullptr) arguments_.feedback->end(well);
  arguments_.feedback.reset();
}

Status PlanOperation::on_frame(GroupRank peer, Frame&& frame) {
  const FrameHeader header = frame.header();
  std::optional<std::size_t> lane;
  if (header.kind == FrameKind::data) {
    lane = inbound_.on_data(peer, std::move(frame));
  } else {
    lane = header.kind == FrameKind::grant ? outbound_.on_grant(peer, header) : inbound_.on_request(peer, header);
  }
  if (!lane) return refuse(peer, header);
  scheduler_.wake(*lane);
  return {};
}

// In an all_to_all with counts, frames name the length of their piece, which the callers of both ranks gave.
Failure PlanOperation::refuse(GroupRank peer, const FrameHeader& header) const {
  const auto phase = static_cast<std::uint16_t>(header.phase & ~kEagerFlag);
  if (call().collective == Collective::all_to_all && !call().counts.empty()) {
    const WorldRank self = group_.world_rank(group_.rank);
    const bool sends = header.kind == FrameKind::data || header.kind == FrameKind::request;
    const std::uint64_t own = call().counts[peer.index() + (sends ? group_.ranks.size() : 0)];
    const std::uint64_t length = plan::length_of_piece(phase, header.chunk);
    if (own != length) {
      return Failure(ErrorKind::misuse, fmt::format("rank {} {} rank {} {} elements, but rank {} {} {}",
                                                    group_.world_rank(peer), sends ? "sends" : "receives from", self,
                                                    length, self, sends ? "receives" : "sends", own));
    }
  }
  return unexpected(peer, fmt::format("{} phase {} chunk {} slice {}, which {} does not expect now", verb(header.kind),
                                      phase, header.chunk, header.slice, call().describe()));
}

std::byte* PlanOperation::find_destination(GroupRank peer, const FrameHeader& header) {
  const auto stream = inbound_.find_placeable(peer, header);
  if (!stream) return nullptr;
  const std::size_t lane = plan().streams().inbound[*stream].lane;
  const LaneProgress& progress = lanes_[lane];
  if (header.slice >= progress.open) return nullptr;
  const auto& steps = progress.lane->steps;
  std::size_t at = 0;
  while (!plan::receives(steps[at].kind) || (*progress.first_streams)[at] != *stream) ++at;
  const std::size_t elements = plan().slice_length(progress.lane->count, header.slice);
  const std::size_t limit = plan().payload_limit(elements, steps[at].raw);
  if (header.payload_bytes > limit) return nullptr;
  std::byte* destination = nullptr;
  if (deferred_ != nullptr) {
    destination = deferred_->find_place(lane, at, header.slice);
  } else if (header.payload_bytes == limit && (plan().codec() == nullptr || steps[at].raw) &&
             progress.copies_next(at, header.slice)) {
    destination = compute_->find_destination(lane, header.slice);
  }
  if (destination != nullptr) inbound_.note_placed(*stream, header);
  return destination;
}

void PlanOperation::drop_frames() {
  inbound_.drop_frames();
  for (LaneProgress& progress : lanes_) {
    for (HeldSlice* const held : {&progress.current, &progress.pending, &progress.received}) inbound_.release(*held);
  }
  if (deferred_ != nullptr) deferred_->drop();
}

Waiting PlanOperation::waiting() const {
  Waiting result = inbound_.waiting();
  if (result.peers.empty()) result.peers = outbound_.unfinished_peers();
  std::ranges::sort(result.peers);
  const auto repeated = std::ranges::unique(result.peers);
  result.peers.erase(repeated.begin(), repeated.end());
  return result;
}

bool PlanOperation::lacks(GroupRank member) const {
  const std::vector<GroupRank> targets = outbound_.unfinished_peers();
  return inbound_.lacks(member) || std::ranges::find(targets, member) != targets.end();
}

StepStatus PlanOperation::send_slice(std::size_t lane, std::size_t stream) {
  const LaneProgress& progress = lanes_[lane];
  const GroupRank peer(progress.lane->steps[progress.step].peers[progress.sent]);
  const Outgoing outgoing = compute_->outgoing(lane, progress.step, peer);
  const auto permission = outbound_.may_send(stream, outgoing.limit);
  if (permission == OutboundStreams::Permission::awaited) return StepStatus::waits;
  if (permission == OutboundStreams::Permission::none) return StepStatus::no_room;
  Reservation room = outbound_.begin_slice(stream, outgoing.limit);
  if (!room) return StepStatus::no_room;
  ConstBytes payload = outgoing.ready;
  if (payload.data() == nullptr) {
    const Bytes target = payload_room(room);
    payload = target.first(compute_->write(lane, progress.step, peer, target));
  }
  outbound_.finish_slice(stream, std::move(room), payload, permission == OutboundStreams::Permission::eager);
  note_sent(plan().slice_length(progress.lane->count, progress.slice) * element_bytes(call().type));
  return StepStatus::done;
}

// To each of the step's peers, now or, if it is deferred, when the lane is advanced next.
StepStatus PlanOperation::send(std::size_t lane) {
  LaneProgress& progress = lanes_[lane];
  if (deferred_ != nullptr && deferred_->begin_send(lane, progress.slice, progress.step)) return StepStatus::done;
  const std::size_t first = (*progress.first_streams)[progress.step];
  for (; progress.sent < progress.lane->steps[progress.step].peers.size(); ++progress.sent) {
    const StepStatus status = send_slice(lane, first + progress.sent);
    if (status != StepStatus::done) return status;
  }
  progress.sent = 0;
  inbound_.release(progress.received);
  return StepStatus::done;
}

// A later step may need the received frame.
Result<StepStatus> PlanOperation::receive(std::size_t lane) {
  LaneProgress& progress = lanes_[lane];
  const Step& step = progress.lane->steps[progress.step];
  const std::size_t stream = (*progress.first_streams)[progress.step];
  if (!inbound_.has_slice(stream)) return StepStatus::waits;
  progress.current = inbound_.take_slice(stream);
  const Status received = compute_->receive(lane, progress.step, progress.current.frame.payload());
  const bool reduces = step.kind == StepKind::recv_reduce;
  if (reduces) inbound_.release(progress.pending);
  if (deferred_ != nullptr && received.ok() && deferred_->keeps_payload(lane)) inbound_.keep(progress.current);
  if (!reduces && progress.step + 1 < progress.lane->steps.size()) {
    progress.received = std::exchange(progress.current, {});
  } else if (reduces && received.ok() && compute_->keeps_part(lane)) {
    progress.pending = std::exchange(progress.current, {});
  } else {
    inbound_.release(progress.current);
  }
  if (!received.ok()) return Failure(received.error());
  return StepStatus::done;
}

Result<StepStatus> PlanOperation::take_step(std::size_t lane) {
  LaneProgress& progress = lanes_[lane];
  const StepKind kind = progress.lane->steps[progress.step].kind;
  if (plan::sends(kind)) return send(lane);
  if (plan::receives(kind)) return receive(lane);
  QCCL_TRY(compute_->local(lane, progress.step));
  if (kind == StepKind::local_reduce) inbound_.release(progress.pending);
  return StepStatus::done;
}

// Sends what earlier slices have left to be sent, then takes steps until one can't be taken or a slice is complete.
Result<LaneAdvance> PlanOperation::advance_lane(std::size_t lane) {
  LaneProgress& progress = lanes_[lane];
  LaneAdvance result;
  if (deferred_ != nullptr && deferred_->has_sends(lane)) {
    std::uint64_t sent_bytes = 0;
    result = deferred_->send(lane, sent_bytes);
    note_sent(sent_bytes);
    note_ended(lane);
    if (!result.starved_by.is_none()) return result;
  }
  while (progress.has_slices()) {
    if (deferred_ != nullptr && progress.step == 0 && !deferred_->may_begin(lane)) return result;
    const Step& step = progress.lane->steps[progress.step];
    const std::size_t sent_before = progress.sent;
    auto status = take_step(lane);
    if (!status.ok()) return status.failure();
    result.moved |= progress.sent != sent_before;
    if (*status == StepStatus::no_room) result.starved_by = GroupRank(step.peers[progress.sent]);
    if (*status != StepStatus::done) return result;
    result.moved = true;
    if (++progress.step < progress.lane->steps.size()) continue;
    end_slice(lane);
    result.is_ready = progress.has_slices();
    return result;
  }
  return result;
}

void PlanOperation::end_slice(std::size_t lane) {
  LaneProgress& progress = lanes_[lane];
  progress.step = 0;
  ++progress.slice;
  compute_->begin_slice(lane, progress.slice);
  if (deferred_ != nullptr) deferred_->release_read();
  note_ended(lane);
}

// A slice with a deferred send ends with that.
std::uint64_t PlanOperation::ended_slices(std::size_t lane) const {
  const std::uint64_t slice = lanes_[lane].slice;
  return deferred_ == nullptr ? slice : std::min(slice, deferred_->unsent_slice(lane));
}

// Once for each slice that the lane ends, or for several.
void PlanOperation::note_ended(std::size_t lane) {
  const std::uint64_t ended = ended_slices(lane);
  if (ended == lanes_[lane].slices) {
    compute_->end_lane(lane);
    scheduler_.end_lane();
  }
  open_followers(lane, ended);
}

void PlanOperation::open_followers(std::size_t lane, std::uint64_t ended) {
  for (const std::size_t index : lanes_[lane].followers) {
    LaneProgress& follower = lanes_[index];
    const std::uint64_t open = plan::open_slices(*follower.lane, follower.slices, ended, lanes_[lane].slices);
    if (open == follower.open) continue;
    follower.open = open;
    scheduler_.wake(index);
  }
}

Result<bool> PlanOperation::advance() {
  bool moved = outbound_.announce();
  moved |= inbound_.grant();
  if (deferred_ != nullptr) {
    QCCL_ASSIGN(const bool ended, deferred_->look());
    for (std::size_t lane = 0; ended && lane < lanes_.size(); ++lane) scheduler_.wake(lane);
    moved |= ended;
  }
  auto lanes_moved = scheduler_.run([this](std::size_t lane) { return advance_lane(lane); });
  if (!lanes_moved.ok()) return lanes_moved.failure();
  moved |= *lanes_moved;
  if (moved) inbound_.grant();
  if (deferred_ != nullptr) QCCL_TRY(deferred_->submit());
  return moved;
}

}  // namespace qccl::engine
