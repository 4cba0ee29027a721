// The part of Engine that says what it is doing, for people who look from outside.
#include <algorithm>

#include "engine/engine.h"

namespace qccl::engine {
namespace {

double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Engine::report(RankStatus& status) const {
  for (const auto& [id, group] : groups_) {
    status.groups.push_back({group->name, group->next_sequence - 1, group->failure ? group->failure->message : ""});
  }
  for (const auto& operation : operations_) {
    if (operation == nullptr) continue;
    const Waiting waiting = operation->waiting();
    CallStatus call;
    call.group = operation->group().name;
    call.number = operation->sequence();
    call.call = operation->describe();
    // The deadline of a call that has not begun is still kForever.
    if (operation->deadline() != kForever) {
      call.seconds = std::max(0.0, seconds(clock_.now() - (operation->deadline() - operation->timeout())));
    }
    for (const int member : peers_.suspects(operation->group(), waiting.peers, now_)) {
      call.waits_for.push_back(operation->group().world_rank(member));
    }
    call.received_bytes = waiting.received_bytes;
    call.expected_bytes = waiting.expected_bytes;
    status.calls.push_back(std::move(call));
  }
}

}  // namespace qccl::engine
