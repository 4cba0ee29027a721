#include "engine/engine_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::engine {
namespace {

double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::string rank_list(const Group& group, const std::vector<GroupRank>& members) {
  std::vector<WorldRank> ranks;
  for (const GroupRank member : members) ranks.push_back(group.world_rank(member));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string progress_text(const Waiting& waiting) {
  return fmt::format("got {} of {} bytes", waiting.received_bytes, waiting.expected_bytes);
}

std::vector<std::string> describe_in_flight(const EngineParts& parts, std::uint64_t id) {
  std::vector<std::string> list;
  for (const auto& operation : parts.operations) {
    if (operation == nullptr || operation->group().id != id) continue;
    const Waiting waiting = operation->waiting();
    const std::vector<GroupRank> peers = parts.peers.suspects(operation->group(), waiting.peers, parts.now);
    list.push_back(fmt::format("{} #{} waits for {} ({})", operation->describe(), operation->sequence(),
                               peers.empty() ? "nobody" : rank_list(operation->group(), peers),
                               progress_text(waiting)));
  }
  return list;
}

std::optional<ErrorInfo> given_up(const EngineParts& parts, const FailureHandler& failures,
                                  const internal::WorkState& work, Milliseconds waited) {
  const auto found = std::find_if(parts.operations.begin(), parts.operations.end(), [&](const auto& operation) {
    return operation != nullptr && operation->work() != nullptr && operation->work()->is_part_of(work);
  });
  if (found == parts.operations.end()) return std::nullopt;
  const Operation& operation = **found;
  const Waiting waiting = operation.waiting();
  const std::vector<GroupRank> peers = parts.peers.suspects(operation.group(), waiting.peers, parts.now);
  const std::string awaited = peers.empty() ? "" : ", waiting for " + rank_list(operation.group(), peers);
  return failures.failure_of(operation, ErrorKind::deadline_exceeded,
                             fmt::format("did not end within the {} ms that wait() was given{} ({}); it goes on",
                                         waited.count(), awaited, progress_text(waiting)));
}

void report(const EngineParts& parts, RankStatus& status) {
  for (const auto& [id, group] : parts.groups) {
    status.groups.push_back({group->name, group->next_sequence - 1, group->failure ? group->failure->message : ""});
  }
  for (const auto& operation : parts.operations) {
    if (operation == nullptr) continue;
    const Waiting waiting = operation->waiting();
    CallStatus call;
    call.group = operation->group().name;
    call.number = operation->sequence();
    call.call = operation->describe();
    // The deadline of a call that has not begun is still kForever.
    if (operation->deadline() != kForever) {
      call.seconds =
          std::max(0.0, seconds(parts.clock.now() - (operation->deadline() - operation->arguments().timeout)));
    }
    for (const GroupRank member : parts.peers.suspects(operation->group(), waiting.peers, parts.now)) {
      call.waits_for.push_back(operation->group().world_rank(member).value());
    }
    call.received_bytes = waiting.received_bytes;
    call.expected_bytes = waiting.expected_bytes;
    status.calls.push_back(std::move(call));
  }
}

}  // namespace qccl::engine
