#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/message/mailbox.h"

namespace qccl::engine {

Engine::Engine(Transport& transport, const Clock& clock, EngineOptions options)
    : parts_(transport, clock, std::move(options)),
      failures_(parts_),
      mismatches_(parts_, failures_),
      peer_failures_(parts_, failures_),
      dispatcher_(parts_, {failures_, peer_failures_, mismatches_}),
      starter_(parts_, failures_, peer_failures_, dispatcher_),
      groups_(parts_, failures_, mismatches_, dispatcher_) {}

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
  try {
    return move();
  } catch (const std::bad_alloc&) {
    failures_.abandon_all_groups();
    return false;
  }
}

bool Engine::move() {
  parts_.now = parts_.clock.now();
  parts_.frame_sender.set_now(parts_.now);
  parts_.operations.start_timers(parts_.now);
  bool moved = parts_.transport.progress();
  moved |= dispatcher_.receive();
  moved |= peer_failures_.look_for_losses();
  moved |= advance_operations();
  moved |= parts_.frame_sender.send_reports();
  if (!has_sent_control()) moved |= parts_.control.send();
  check_timers();
  failures_.sweep();
  groups_.notify_quiet();
  return moved;
}

void Engine::check_timers() {
  mismatches_.check();
  if (parts_.now >= parts_.operations.next_deadline()) peer_failures_.check_deadlines();
  if (parts_.now < parts_.peers.next_heartbeat()) return;
  parts_.peers.beat(parts_.frame_sender, parts_.now);
  peer_failures_.check_silent_peers();
}

TimePoint Engine::next_timer() const {
  return std::min({parts_.operations.next_deadline(), mismatches_.next_deadline(), parts_.peers.next_heartbeat(),
                   parts_.transport.next_send_time()});
}

// ---- operations

bool Engine::advance_operations() {
  bool moved = false;
  bool ended = false;
  for (auto& operation : parts_.operations) {
    if (operation->group().failure || operation->waits_for_turn()) continue;
    try {
      moved |= advance_operation(operation);
    } catch (const std::bad_alloc&) {
      failures_.run_out(operation->group(), operation.get());
    }
    ended |= operation == nullptr;
  }
  if (ended) parts_.operations.erase_ended();
  return moved || ended;
}

bool Engine::advance_operation(std::unique_ptr<Operation>& operation) {
  auto advanced = operation->log_notes().is_wanted ? parts_.recorder.advance(*operation) : operation->advance();
  if (!advanced.ok()) {
    failures_.fail(*operation, advanced.error().kind, advanced.error().message);
    return false;
  }
  if (operation->has_differing_call()) mismatches_.begin(operation->group(), operation->sequence());
  if (operation->finished()) {
    end_turn(*operation);
    failures_.complete(*operation, nullptr);
    parts_.operations.park(std::move(operation));
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

}  // namespace qccl::engine
