#include "engine/act/failure_handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace qccl::engine {
using wire::FrameKind;

FailureHandler::FailureHandler(const EngineOptions& options, const RoundClock& clock, GroupTable& groups,
                               OperationTable& operations, FrameSender& frame_sender, ControlQueue& control,
                               const OperationRecorder& recorder, CallLedger& ledger, EndedWorks& ended)
    : options_(options),
      clock_(clock),
      groups_(groups),
      operations_(operations),
      frame_sender_(frame_sender),
      control_(control),
      recorder_(recorder),
      ledger_(ledger),
      ended_(ended) {
  const WorldRank own = options.rank;
  const auto reason = [own](ErrorKind kind, WorldRank peer, const char* what) {
    return std::make_shared<const ErrorInfo>(ErrorInfo{.kind = kind,
                                                       .message = fmt::format("QCCL rank {}: {}", own, what),
                                                       .rank = own.value(),
                                                       .peer = peer.value()});
  };
  no_memory_ = reason(ErrorKind::resource_exhausted, own, kNoMemory);
  closed_ = reason(ErrorKind::aborted, {}, "the group was closed");
  refused_.reserve(kMaxRefusals);
}

void FailureHandler::complete(Operation& operation, internal::SharedFailure failure) {
  try {
    if (operation.awaits_placed()) frame_sender_.transport().withdraw();
  } catch (const std::bad_alloc&) {
    fail_all_groups();  // frames lost here may have been any group's
  }
  if (failure != nullptr) operation.take_back();
  const CallTimer timer = std::exchange(operation.timer(), {});
  ledger_.end(operation.ending(failure == nullptr), timer, timer.weight > 0 ? clock_.look() : TimePoint{});
  if (operation.log_notes().is_wanted) recorder_.end(operation, failure.get());
  ended_.push(operation.work(), std::move(failure));
}

void FailureHandler::fail(Group& group, ErrorInfo failure, bool tell_peers) {
  if (group.failure) return;
  group.failure = std::make_shared<const ErrorInfo>(std::move(failure));
  group.is_untold = tell_peers;
  sweep_needed_ = any_failed_ = true;
  tell_members(group);
}

void FailureHandler::fail(const Operation& operation, ErrorKind kind, const std::string& what, WorldRank peer,
                          bool tell_peers) {
  ErrorInfo failure = failure_of(operation, kind, what);
  if (!peer.is_none()) failure.peer = peer.value();
  fail(operation.group(), std::move(failure), tell_peers);
}

void FailureHandler::tell_members(Group& group) {
  if (group.is_untold) group.is_untold = !poison_if_possible(group.id, group.ranks, *group.failure);
}

// Retried at the next sweep if there is no memory for it now.
bool FailureHandler::poison_if_possible(std::uint64_t group, const std::vector<int>& ranks, const ErrorInfo& failure) {
  try {
    control_.queue_for_all(ranks, {.kind = FrameKind::poison, .group = group},
                           fmt::format("{}\n{}\n{}", static_cast<int>(failure.kind), failure.peer,
                                       failure.message.substr(0, kMaxPoisonText)));
    return true;
  } catch (const std::bad_alloc&) {
    sweep_needed_ = true;
    return false;
  }
}

void FailureHandler::close(Group& group) {
  if (group.failure == nullptr) {
    end_watchers(group);
    group.failure = closed_;
  }
  for (const auto& operation : operations_) {
    if (&operation->group() == &group && operation->device() != nullptr)
      operation->device()->drain(operation->fills_if_failed());
  }
  sweep_needed_ = true;
  sweep();
}

void FailureHandler::end(Group& group, ErrorInfo failure) {
  group.failure = std::make_shared<const ErrorInfo>(std::move(failure));
  group.is_untold = false;
  sweep_needed_ = any_failed_ = true;
}

void FailureHandler::end_watchers(Group& group) {
  for (auto& watcher : std::exchange(group.watchers, {})) ended_.push(std::move(watcher), group.failure);
}

internal::SharedFailure FailureHandler::failure_of_parent(const Group& opening) const {
  const Group* const parent = opening.parent ? groups_.find(*opening.parent) : nullptr;
  if (parent == nullptr || parent->failure == nullptr || parent->failure == closed_) return nullptr;
  const ErrorInfo& failure = *parent->failure;
  const bool lost_outsider = failure.kind == ErrorKind::peer_lost && failure.peer >= 0 &&
                             opening.group_rank(WorldRank(failure.peer)).is_none();
  return lost_outsider ? nullptr : parent->failure;
}

void FailureHandler::sweep() {
  if (!sweep_needed_) return;
  sweep_needed_ = false;
  for (auto& [id, group] : groups_) {
    if (group->failure) continue;
    group->failure = failure_of_parent(*group);
    group->is_untold = group->failure != nullptr;
  }
  for (auto& operation : operations_) {
    if (!operation->group().failure) continue;
    operation->drop_frames();
    DevicePart* const device = operation->device();
    if (device != nullptr && !device->abandon(operation->fills_if_failed())) {
      sweep_needed_ = true;
      operations_.note_device_look(clock_.now() + device->patience());
      continue;
    }
    const bool well = operation->finished() && (device == nullptr || device->has_returned());
    complete(*operation, well ? nullptr : operation->group().failure);
    if (well) operation->park();  // else its end would undo the error feedback
    operation.reset();
  }
  operations_.erase_ended();
  for (auto& [id, group] : groups_) {
    if (!group->failure) continue;
    end_watchers(*group);
    group->stored.clear();
    if (group->mail != nullptr) group->mail->drop_frames();
    tell_members(*group);
  }
  tell_refusals();
}

void FailureHandler::refuse(std::uint64_t id, std::vector<int>&& ranks) {
  if (refused_.size() == kMaxRefusals) return;
  refused_.emplace_back(id, std::move(ranks));
  tell_refusals();
}

void FailureHandler::tell_refusals() {
  std::erase_if(refused_,
                [this](const auto& group) { return poison_if_possible(group.first, group.second, *no_memory_); });
}

// The group cannot continue: an operation's step, or a frame, was lost half way.
void FailureHandler::run_out(Group& group, const Operation* operation) {
  sweep_needed_ = true;
  if (group.failure) return;
  group.failure = memory_failure(group, operation);
  group.is_untold = true;
}

internal::SharedFailure FailureHandler::memory_failure(const Group& group, const Operation* operation) const {
  try {
    ErrorInfo info = group_error(group, ErrorKind::resource_exhausted, options_.rank, kNoMemory);
    if (operation == nullptr) return std::make_shared<const ErrorInfo>(std::move(info));
    info.message = fmt::format("QCCL rank {}, group '{}': {} #{}: {}", options_.rank, group.name, operation->describe(),
                               operation->sequence(), kNoMemory);
    info.operation = operation->arguments().name();
    info.sequence = operation->sequence();
    return std::make_shared<const ErrorInfo>(std::move(info));
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

void FailureHandler::fail_all_groups() {
  failure_ = no_memory_;
  sweep_needed_ = true;
  for (auto& [id, group] : groups_) run_out(*group, nullptr);
}

// The step that was lost may have been any group's.
void FailureHandler::abandon_all_groups() {
  fail_all_groups();
  try {
    sweep();
    control_.send();
  } catch (const std::bad_alloc&) {
    sweep_needed_ = true;
  }
}

ErrorInfo FailureHandler::group_error(const Group& group, ErrorKind kind, WorldRank peer,
                                      const std::string& what) const {
  ErrorInfo info;
  info.kind = kind;
  info.message = fmt::format("QCCL rank {}, group '{}': {}", options_.rank, group.name, what);
  info.rank = options_.rank.value();
  info.peer = peer.value();
  return info;
}

ErrorInfo FailureHandler::failure_of(const Operation& operation, ErrorKind kind, const std::string& what) const {
  const Waiting waiting = operation.waiting();
  const Group& group = operation.group();
  ErrorInfo info =
      group_error(group, kind, waiting.peers.empty() ? WorldRank() : group.world_rank(waiting.peers.front()),
                  fmt::format("{} #{}: {}", operation.describe(), operation.sequence(), what));
  info.operation = operation.arguments().name();
  info.sequence = operation.sequence();
  info.received_bytes = waiting.received_bytes;
  info.expected_bytes = waiting.expected_bytes;
  return info;
}

}  // namespace qccl::engine
