#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "engine/message/mailbox.h"
#include "engine/staged/staged_call.h"

namespace qccl::engine {
namespace {

// What a call on device memory does before and after its host operation, whose deadline begins with it; until then with
// each gate that the caller's stream may have waited for. True if anything moved.
bool advance_copies(Operation& operation, EngineParts& parts, FailureHandler& failures) {
  StagedCall& staged = *operation.staged();
  auto advanced = staged.advance();
  if (!advanced.ok()) {
    failures.fail(operation, advanced.error().kind, advanced.error().message);
    return false;
  }
  const bool begins = *advanced && staged.runs();
  if (begins || staged.saw_gate_open()) {
    operation.start(parts.now);
    parts.operations.note_deadline(operation.deadline());
  }
  parts.next_device_look = std::min(parts.next_device_look, parts.now + staged.patience());
  return *advanced;
}

// The host operation of a call on device memory has ended. True if there is nothing to copy back.
bool begin_return(Operation& operation, FailureHandler& failures) {
  const Status begun = operation.staged()->begin_return();
  if (!begun.ok()) failures.fail(operation, begun.error().kind, begun.error().message);
  return operation.staged()->has_ended();
}

void end(std::unique_ptr<Operation>& operation, EngineParts& parts, FailureHandler& failures) {
  failures.complete(*operation, nullptr);
  parts.operations.park(std::move(operation));
}

}  // namespace

Engine::Engine(Transport& transport, const Clock& clock, EngineOptions options)
    : parts_(transport, clock, std::move(options)),
      failures_(parts_),
      dispatcher_(parts_, failures_.handler, failures_.peers, failures_.mismatches, failures_.shrinker),
      starter_(parts_, failures_.handler, failures_.peers, dispatcher_),
      groups_(parts_, failures_.handler, failures_.mismatches, failures_.shrinker, dispatcher_) {}

Engine::~Engine() {
  Transport& transport = parts_.transport;
  transport.set_placement(nullptr);
  transport.withdraw();
  parts_.operations.clear();
  parts_.groups.visit_stored([&](const StoredFrame& stored) { transport.release(stored.frame); });
  for (auto& [id, group] : parts_.groups) {
    if (group->mailbox != nullptr) group->mailbox->drop_frames();
  }
}

bool Engine::progress() {
  parts_.rounds.store(rounds() + 1, std::memory_order_relaxed);
  try {
    return move();
  } catch (const std::bad_alloc&) {
    failures_.handler.abandon_all_groups();
    return false;
  }
}

bool Engine::move() {
  parts_.now = parts_.clock.now();
  parts_.next_device_look = kForever;
  parts_.frame_sender.set_now(parts_.now);
  parts_.operations.start_timers(parts_.now);
  bool moved = parts_.transport.progress();
  moved |= dispatcher_.receive();
  moved |= failures_.peers.look_for_losses();
  moved |= advance_operations();
  failures_.shrinker.advance();
  moved |= parts_.frame_sender.send_reports();
  if (!has_sent_control()) moved |= parts_.control.send();
  failures_.mismatches.check();
  if (parts_.now >= parts_.operations.next_deadline()) failures_.peers.check_deadlines();
  if (parts_.now >= parts_.peers.next_heartbeat()) {
    parts_.peers.beat(parts_.frame_sender, parts_.now);
    failures_.peers.check_silent_peers();
  }
  if (parts_.now >= parts_.peers.line().next()) parts_.peers.measure_line(parts_.transport, parts_.now);
  failures_.handler.sweep();
  groups_.notify_quiet();
  return moved;
}

Nanoseconds Engine::leave_patience() const {
  const Nanoseconds patience = std::max(Transport::kClosePatience, 20 * parts_.peers.longest_round_trip());
  if (failures_.handler.any_failed() || !parts_.peers.any_may_wait(parts_.transport)) return patience;
  return std::max(patience, parts_.options.peer_timeout);
}

TimePoint Engine::next_timer() const {
  return std::min({parts_.operations.next_deadline(), failures_.mismatches.next_deadline(),
                   parts_.peers.next_heartbeat(), parts_.transport.next_send_time(), parts_.next_device_look,
                   failures_.shrinker.next_timer()});
}

bool Engine::advance_operations() {
  bool moved = false;
  bool ended = false;
  for (auto& operation : parts_.operations) {
    if (operation->group().failure || operation->waits_for_turn()) continue;
    try {
      moved |= advance_operation(operation);
    } catch (const std::bad_alloc&) {
      failures_.handler.run_out(operation->group(), operation.get());
    }
    ended |= operation == nullptr;
  }
  if (ended) parts_.operations.erase_ended();
  return moved || ended;
}

bool Engine::advance_operation(std::unique_ptr<Operation>& operation) {
  StagedCall* const staged = operation->staged();
  if (staged != nullptr && !staged->runs()) {
    const bool moved = advance_copies(*operation, parts_, failures_.handler);
    if (staged->has_ended()) end(operation, parts_, failures_.handler);
    return moved;
  }
  auto advanced = operation->log_notes().is_wanted ? parts_.recorder.advance(*operation) : operation->advance();
  if (!advanced.ok()) {
    failures_.handler.fail(*operation, advanced.error().kind, advanced.error().message);
    return false;
  }
  if (*advanced) operation->note_moved(parts_.now);
  if (staged != nullptr && !staged->jobs().is_idle()) {
    parts_.next_device_look = std::min(parts_.next_device_look, parts_.now + staged->patience());
  }
  if (operation->has_differing_call()) failures_.mismatches.begin(operation->group(), operation->sequence());
  if (operation->finished()) {
    end_turn(*operation);
    if (staged == nullptr || begin_return(*operation, failures_.handler)) end(operation, parts_, failures_.handler);
  }
  return *advanced;
}

// Begins the operations that waited for the end of this one.
void Engine::end_turn(const Operation& ended) {
  const std::uint64_t bytes = ended.admission_bytes();
  if (bytes == 0) return;
  AdmissionControl& turns = ended.group().admission;
  turns.end(bytes);
  if (!turns.any_waits()) return;
  for (const auto& operation : parts_.operations) {
    if (operation == nullptr || &operation->group() != &ended.group() || !operation->waits_for_turn()) continue;
    if (!turns.begin_next(operation->admission_bytes())) return;
    operation->defer(false);
  }
}

std::vector<std::string> Engine::describe_in_flight(std::uint64_t group) const {
  std::vector<std::string> list;
  for (const auto& operation : parts_.operations) {
    if (operation == nullptr || operation->group().id != group) continue;
    if (const StagedCall* const staged = operation->staged(); staged != nullptr && !staged->runs()) {
      list.push_back(
          fmt::format("{} #{} waits for {}", operation->describe(), operation->sequence(), staged->awaited()));
      continue;
    }
    const Waiting waiting = operation->waiting();
    const std::vector<GroupRank> peers = parts_.peers.suspects(operation->group(), waiting.peers, parts_.now);
    list.push_back(fmt::format("{} #{} waits for {} ({})", operation->describe(), operation->sequence(),
                               peers.empty() ? "nobody" : operation->group().rank_list(peers), waiting.progress()));
  }
  return list;
}

std::optional<ErrorInfo> Engine::given_up(const internal::WorkState& work, Milliseconds waited) const {
  const auto found = std::find_if(parts_.operations.begin(), parts_.operations.end(), [&](const auto& operation) {
    return operation != nullptr && operation->work() != nullptr && operation->work()->is_part_of(work);
  });
  if (found == parts_.operations.end()) return std::nullopt;
  const Operation& operation = **found;
  const Waiting waiting = operation.waiting();
  const std::vector<GroupRank> peers = parts_.peers.suspects(operation.group(), waiting.peers, parts_.now);
  std::string awaited = peers.empty() ? "" : ", waiting for " + operation.group().rank_list(peers);
  if (const StagedCall* const staged = operation.staged(); staged != nullptr && !staged->runs()) {
    awaited = fmt::format(", waiting for {}", staged->awaited());
  }
  return failures_.handler.failure_of(
      operation, ErrorKind::deadline_exceeded,
      fmt::format("did not end within the {} ms that wait() was given{} ({}); it goes on", waited.count(), awaited,
                  waiting.progress()));
}

void Engine::report(RankStatus& status) const {
  for (const auto& [id, group] : parts_.groups) {
    status.groups.push_back({group->name, group->next_sequence - 1, group->failure ? group->failure->message : ""});
  }
  for (const auto& operation : parts_.operations) {
    if (operation == nullptr) continue;
    const Waiting waiting = operation->waiting();
    CallStatus call;
    call.group = operation->group().name;
    call.number = operation->sequence();
    call.call = operation->describe();
    // The deadline of a call that has not begun is still kForever.
    if (operation->deadline() != kForever) {
      const Nanoseconds since = parts_.clock.now() - (operation->deadline() - operation->arguments().timeout);
      call.seconds = std::max(0.0, std::chrono::duration<double>(since).count());
    }
    for (const GroupRank member : parts_.peers.suspects(operation->group(), waiting.peers, parts_.now)) {
      call.waits_for.push_back(operation->group().world_rank(member).value());
    }
    call.received_bytes = waiting.received_bytes;
    call.expected_bytes = waiting.expected_bytes;
    status.calls.push_back(std::move(call));
  }
}

}  // namespace qccl::engine
