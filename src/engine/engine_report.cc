// Engine::report(): the state of a rank, gathered when somebody asks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/engine.h"

namespace qccl::engine {
namespace {

// A line on which so many packets were sent again, and at least a hundredth of all, is named.
constexpr std::uint64_t kManyResent = 100;
constexpr std::uint64_t kPacketBytes = 1448;

double in_seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

void report_counters(const CallLedger& ledger, RankStatus& status) {
  std::uint64_t plain = 0;
  std::uint64_t payload = 0;
  for (const auto& [name, group] : ledger.groups()) {
    for (std::size_t kind = 0; kind < kCallKinds; ++kind) {
      const CallTotals& totals = group.by_kind[kind];
      if (totals.calls + totals.failures == 0) continue;
      status.counters.push_back({.group = name,
                                 .group_size = group.size,
                                 .operation = std::string(call_kind_name(kind)),
                                 .calls = totals.calls,
                                 .failures = totals.failures,
                                 .bytes = totals.bytes,
                                 .payload_bytes = totals.payload_bytes,
                                 .plain_bytes = totals.plain_bytes,
                                 .seconds = in_seconds(totals.time)});
      plain += totals.plain_bytes;
      payload += totals.payload_bytes;
    }
  }
  status.saved_bytes = plain - std::min(plain, payload);
}

void report_last(const CallLedger& ledger, TimePoint now, RankStatus& status) {
  const CallLedger::Last& last = ledger.last();
  if (last.group == nullptr) return;
  status.last = {.group = *last.group,
                 .number = last.number,
                 .operation = std::string(call_kind_name(last.kind)),
                 .seconds = last.ended == TimePoint{} ? 0 : in_seconds(now - last.ended)};
}

void report_warnings(RankStatus& status) {
  for (const GroupStatus& group : status.groups) {
    if (!group.failure.empty())
      status.warnings.push_back(fmt::format("group '{}' failed: {}", group.name, group.failure));
  }
  for (const LineStatus& line : status.lines) {
    const std::uint64_t packets = line.acknowledged_bytes / kPacketBytes;
    if (line.resent_packets < kManyResent || 100 * line.resent_packets < packets) continue;
    status.warnings.push_back(fmt::format("{} packets to rank {} were sent again", line.resent_packets, line.peer));
  }
}

}  // namespace

void Engine::report(RankStatus& status) const {
  const TimePoint now = clock_.look();
  for (const auto& [id, group] : group_table_) {
    status.groups.push_back({.name = group->name,
                             .id = fmt::format("{:016x}", id),
                             .calls = group->next_sequence - 1,
                             .failure = group->failure ? group->failure->message : ""});
  }
  for (const auto& operation : operations_) {
    if (operation != nullptr) status.calls.push_back(status_of(*operation));
  }
  report_last(ledger_, now, status);
  report_counters(ledger_, status);
  status.seconds = in_seconds(now - begun_);
  status.busy_seconds = in_seconds(ledger_.busy(now));
  status.sent_bytes = frame_sender_.counters().bytes();
  report_lines(status);
  report_warnings(status);
  status.answered = true;
}

void Engine::report_lines(RankStatus& status) const {
  for (WorldRank peer(0); peer.value() < options_.world; ++peer) {
    if (peer == options_.rank) continue;
    const Transport::Acknowledged line = transport_.acknowledged(peer);
    if (line.bytes == 0) continue;
    status.resent_packets += line.resent;
    status.lines.push_back({.peer = peer.value(),
                            .acknowledged_bytes = line.bytes,
                            .resent_packets = line.resent,
                            .busy_seconds = in_seconds(line.busy),
                            .round_trip_seconds = in_seconds(peers_[peer].round_trip)});
  }
  std::ranges::stable_sort(status.lines, {}, &LineStatus::bytes_per_second);
}

CallStatus Engine::status_of(const Operation& operation) const {
  const Waiting waiting = operation.waiting();
  const Group& group = operation.group();
  CallStatus call{.group = group.name,
                  .group_id = fmt::format("{:016x}", group.id),
                  .number = operation.sequence(),
                  .is_message = operation.is_message(),
                  .operation = std::string(operation.arguments().name()),
                  .call = operation.describe(),
                  .bytes = operation.input_bytes(),
                  .waits_for = {},
                  .received_bytes = waiting.received_bytes,
                  .expected_bytes = waiting.expected_bytes};
  // The deadline of a call that has not begun is still kForever.
  if (operation.deadline() != kForever) {
    const Nanoseconds since = clock_.look() - (operation.deadline() - operation.arguments().timeout);
    call.seconds = std::max(0.0, in_seconds(since));
  }
  for (const GroupRank member : peers_.suspects(group, waiting.peers, clock_.now())) {
    call.waits_for.push_back(group.world_rank(member).value());
  }
  return call;
}

}  // namespace qccl::engine
