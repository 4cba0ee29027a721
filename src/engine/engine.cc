#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace qccl::engine {

Engine::Engine(Transport& transport, const Clock& clock, EngineOptions options)
    : transport_(transport),
      options_(std::move(options)),
      clock_(clock),
      frame_sender_(transport, options_.world, options_.checksum),
      peers_(options_.rank, options_.world, options_.heartbeat_interval, options_.peer_timeout, clock_.now()),
      control_(peers_, frame_sender_, options_.rank, options_.world),
      recorder_(options_.log, clock, frame_sender_),
      failures_(options_, clock_, group_table_, operations_, frame_sender_, control_, recorder_, ledger_, ended_),
      mismatches_(clock_, group_table_, operations_, peers_, control_, failures_),
      peer_failures_(options_, clock_, transport, group_table_, operations_, peers_, control_, failures_),
      shrinker_(options_, clock_, group_table_, peers_, control_, ended_, failures_, peer_failures_),
      status_(peers_, control_, options_.rank, options_.world),
      dispatcher_(clock_, group_table_, operations_, peers_, frame_sender_, failures_, peer_failures_, mismatches_,
                  shrinker_, status_),
      starter_(options_, clock_, pool_, frame_sender_, group_table_, operations_, recorder_, ledger_, ended_, failures_,
               peer_failures_, dispatcher_),
      groups_(options_, transport, group_table_, operations_, control_, ended_, failures_, mismatches_, shrinker_,
              dispatcher_, ledger_) {
  peers_.measure(transport);
}

Engine::~Engine() {
  transport_.set_placement(nullptr);
  transport_.withdraw();
}

bool Engine::progress() {
  rounds_.store(rounds() + 1, std::memory_order_relaxed);
  try {
    return move();
  } catch (const std::bad_alloc&) {
    failures_.abandon_all_groups();
    return false;
  }
}

bool Engine::move() {
  const TimePoint now = clock_.read();
  operations_.forget_device_looks();
  frame_sender_.set_now(now);
  ledger_.begin(now, operations_.start_timers(now));
  ledger_.note_round(now);
  bool moved = transport_.progress();
  moved |= dispatcher_.receive();
  moved |= peer_failures_.look_for_losses();
  moved |= advance_operations();
  shrinker_.advance();
  moved |= frame_sender_.send_reports();
  if (!has_sent_control()) moved |= control_.send();
  mismatches_.check();
  if (now >= operations_.next_deadline()) peer_failures_.check_deadlines();
  if (now >= peers_.next_heartbeat()) {
    peers_.beat(frame_sender_, now);
    peer_failures_.check_silent_peers();
  }
  if (now >= peers_.line().next()) peers_.measure_line(transport_, now);
  failures_.sweep();
  groups_.notify_quiet();
  return moved;
}

Nanoseconds Engine::leave_patience() const {
  const Nanoseconds patience = std::max(Transport::kClosePatience, 20 * peers_.longest_round_trip());
  if (failures_.any_failed() || !peers_.any_may_wait(transport_)) return patience;
  return std::max(patience, options_.peer_timeout);
}

TimePoint Engine::next_timer() const {
  return std::min({operations_.next_deadline(), mismatches_.next_deadline(), peers_.next_heartbeat(),
                   transport_.next_send_time(), operations_.next_device_look(), shrinker_.next_timer()});
}

bool Engine::advance_operations() {
  bool moved = false;
  bool ended = false;
  for (auto& operation : operations_) {
    if (operation->group().failure || operation->waits_for_turn()) continue;
    try {
      moved |= advance_operation(operation);
    } catch (const std::bad_alloc&) {
      failures_.run_out(operation->group(), operation.get());
    }
    ended |= operation == nullptr;
  }
  if (ended) operations_.erase_ended();
  return moved || ended;
}

bool Engine::advance_operation(std::unique_ptr<Operation>& operation) {
  DevicePart* const device = operation->device();
  if (device != nullptr && !device->runs()) {
    const bool moved = advance_device(*operation);
    if (device->has_ended()) end(operation);
    return moved;
  }
  // Frames that are sent meanwhile are the operation's own: a rank's engine has one thread.
  const std::uint64_t sent_before = frame_sender_.counters().data_bytes();
  auto advanced = operation->log_notes().is_wanted ? recorder_.advance(*operation) : operation->advance();
  operation->note_payload(frame_sender_.counters().data_bytes() - sent_before);
  if (!advanced.ok()) {
    failures_.fail(*operation, advanced.error().kind, advanced.error().message);
    return false;
  }
  if (*advanced) operation->note_moved(clock_.now());
  if (device != nullptr && device->is_computing()) operations_.note_device_look(clock_.now() + device->patience());
  if (operation->has_differing_call()) mismatches_.begin(operation->group(), operation->sequence());
  if (operation->finished()) {
    end_turn(*operation);
    if (device == nullptr || begin_return(*operation)) end(operation);
  }
  return *advanced;
}

// What the device does before the operation and after it. The operation's deadline begins when it may run; until then
// it begins anew with each gate that the caller's stream may have waited for. True if anything moved.
bool Engine::advance_device(Operation& operation) {
  DevicePart& device = *operation.device();
  auto advanced = device.advance();
  if (!advanced.ok()) {
    failures_.fail(operation, advanced.error().kind, advanced.error().message);
    return false;
  }
  const bool begins = *advanced && device.runs();
  if (begins || device.saw_gate_open()) {
    operation.start(clock_.now());
    operations_.note_deadline(operation.deadline());
  }
  operations_.note_device_look(clock_.now() + device.patience());
  return *advanced;
}

// The operation of a call on device memory has ended. True if there is nothing to copy back.
bool Engine::begin_return(Operation& operation) {
  const Status begun = operation.device()->begin_return();
  if (!begun.ok()) failures_.fail(operation, begun.error().kind, begun.error().message);
  return operation.device()->has_ended();
}

void Engine::end(std::unique_ptr<Operation>& operation) {
  failures_.complete(*operation, nullptr);
  operations_.park(std::move(operation));
}

// Begins the operations that waited for the end of this one.
void Engine::end_turn(const Operation& ended) {
  const std::uint64_t bytes = ended.admission_bytes();
  if (bytes == 0) return;
  AdmissionControl& turns = ended.group().admission;
  turns.end(bytes);
  if (!turns.any_waits()) return;
  for (const auto& operation : operations_) {
    if (operation == nullptr || &operation->group() != &ended.group() || !operation->waits_for_turn()) continue;
    if (!turns.begin_next(operation->admission_bytes())) return;
    operation->defer(false);
  }
}

std::vector<std::string> Engine::describe_in_flight(std::uint64_t group) const {
  std::vector<std::string> list;
  for (const auto& operation : operations_) {
    if (operation == nullptr || operation->group().id != group) continue;
    if (const DevicePart* const device = operation->device(); device != nullptr && !device->runs()) {
      list.push_back(
          fmt::format("{} #{} waits for {}", operation->describe(), operation->sequence(), device->awaited()));
      continue;
    }
    const Waiting waiting = operation->waiting();
    const std::vector<GroupRank> peers = peers_.suspects(operation->group(), waiting.peers, clock_.now());
    list.push_back(fmt::format("{} #{} waits for {} ({})", operation->describe(), operation->sequence(),
                               peers.empty() ? "nobody" : operation->group().rank_list(peers), waiting.progress()));
  }
  return list;
}

std::optional<ErrorInfo> Engine::given_up(const internal::WorkState& work, Milliseconds waited) const {
  const auto found = std::find_if(operations_.begin(), operations_.end(), [&](const auto& operation) {
    return operation != nullptr && operation->work() != nullptr && operation->work()->is_part_of(work);
  });
  if (found == operations_.end()) return std::nullopt;
  const Operation& operation = **found;
  const Waiting waiting = operation.waiting();
  const std::vector<GroupRank> peers = peers_.suspects(operation.group(), waiting.peers, clock_.now());
  std::string awaited = peers.empty() ? "" : ", waiting for " + operation.group().rank_list(peers);
  if (const DevicePart* const device = operation.device(); device != nullptr && !device->runs()) {
    awaited = fmt::format(", waiting for {}", device->awaited());
  }
  return failures_.failure_of(operation, ErrorKind::deadline_exceeded,
                              fmt::format("did not end within the {} ms that wait() was given{} ({}); it goes on",
                                          waited.count(), awaited, waiting.progress()));
}

}  // namespace qccl::engine
