// JobView::add_states(): a running job, by the states that its ranks report.
//
// Lanes show the share of the time that a rank spent in calls between two states. A rank that computes longest waits
// least, so its share is the smallest.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "dashboard/job_view.h"
#include "dashboard/shortened.h"

namespace qccl::dashboard {
namespace {

constexpr std::size_t kMostLines = 200;     // the slowest of all ranks
constexpr std::size_t kMostWarnings = 100;  // of a rank
constexpr double kFresh = 0.2;              // weight of the latest share, at two states a second

// The absences are JobSurvey's words.
std::string state_of(const RankStatus& state) {
  if (state.absence == "left the job") return "left";
  if (!state.absence.empty() && !state.absence.starts_with("does not answer")) return "lost";
  if (!state.answered) return "silent";
  const bool has_failed = std::ranges::any_of(state.groups, [](const auto& group) { return !group.failure.empty(); });
  return has_failed ? "failed" : "ok";
}

std::string doing(const RankStatus& state) {
  if (!state.absence.empty()) return state.absence;
  if (state.calls.empty()) return {};
  const CallStatus& call = state.calls.front();
  return fmt::format("{} #{} for {:.1f} s", call.operation, call.number, call.seconds);
}

std::int64_t ns(double seconds) { return static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1e9); }

}  // namespace

void JobView::add_states(std::span<const RankStatus> states, Nanoseconds now) {
  for (const RankStatus& state : states) {
    add_rank({.rank = state.rank, .world = state.world, .host = state.host, .clock = {}, .records = {}});
  }
  const std::lock_guard lock(mutex_);
  hold_up_ = shortened(find_hold_up(states).text);
  lines_.clear();
  bool has_records = false;
  for (const RankStatus& state : states) {
    add_state(state, now.count());
    for (const LineStatus& line : state.lines) lines_.push_back({state.rank, line});
    const auto found = ranks_.find(state.rank);
    has_records |= found != ranks_.end() && found->second.has_records;
  }
  std::ranges::stable_sort(lines_, {}, [](const Line& line) { return line.status.bytes_per_second(); });
  if (lines_.size() > kMostLines) lines_.resize(kMostLines);
  if (!has_records) add_counters(states);
  end_ = std::max(end_, now.count());
  changed(&Versions::job);
}

void JobView::add_state(const RankStatus& state, std::int64_t now) {
  const auto found = ranks_.find(state.rank);
  if (found == ranks_.end()) return;
  Rank& own = found->second;
  const std::string before = std::exchange(own.live.state, state_of(state));
  own.live.text = shortened(doing(state));
  if (before != "lost" && own.live.state == "lost") {
    say({now, "lost", fmt::format("rank {} {}", state.rank, own.live.text), {state.rank}});
  }
  if (!state.answered) return;
  for (const std::string& warning : state.warnings) {
    const bool is_new = own.live.warnings.size() < kMostWarnings && own.live.warnings.insert(warning).second;
    if (is_new) say({now, "warning", shortened(warning), {state.rank}});
  }
  if (own.has_records) return;
  add_sums(own, state, now);
  add_share(own, state, now);
}

void JobView::add_sums(Rank& own, const RankStatus& state, std::int64_t now) {
  own.last_name = shortened(state.last.operation);
  own.last_sequence = state.last.number;
  own.last_ended = now - ns(state.last.seconds);
  own.wire_bytes = state.sent_bytes;
  own.operations = own.failed = own.plain_bytes = own.payload_bytes = 0;
  for (const CallCounters& counters : state.counters) {
    own.operations += counters.calls + counters.failures;
    own.failed += counters.failures;
    own.plain_bytes += counters.plain_bytes;
    own.payload_bytes += counters.payload_bytes;
  }
}

void JobView::add_share(Rank& own, const RankStatus& state, std::int64_t now) {
  LiveState& live = own.live;
  const double seconds = state.seconds - std::exchange(live.seconds, state.seconds);
  const double busy = state.busy_seconds - std::exchange(live.busy_seconds, state.busy_seconds);
  const std::int64_t from = std::exchange(live.until, now);
  if (seconds <= 0) return;
  const bool is_first = seconds == state.seconds;
  const double share = std::clamp(busy / seconds, 0.0, 1.0);
  live.busy = is_first ? share : (1 - kFresh) * live.busy + kFresh * share;
  const std::string& name = state.calls.empty() ? state.last.operation : state.calls.front().operation;
  if (name.empty()) return;
  const Span span{is_first ? now - ns(seconds) : from, now};
  begin_ = begin_ == 0 ? span.from : std::min(begin_, span.from);
  own.timeline.add_share(span, static_cast<float>(share), kind_of(name));
}

// Calls of all sizes share a row.
void JobView::add_counters(std::span<const RankStatus> states) {
  std::map<std::string, OperationTable::Row> rows;
  std::map<std::string, std::uint64_t> bytes;
  for (const RankStatus& state : states) {
    for (const CallCounters& counters : state.counters) {
      const std::string name = fmt::format("{} of {}", counters.operation, shortened(counters.group));
      OperationTable::Row& row = rows[name];
      row.calls += counters.calls + counters.failures;
      row.failed += counters.failures;
      row.total_ms += 1000 * counters.seconds;
      row.wire_bytes += counters.payload_bytes;
      row.payload_bytes += counters.payload_bytes;
      row.plain_bytes += counters.plain_bytes;
      bytes[name] += counters.bytes;
    }
  }
  for (auto& [name, row] : rows) {
    row.mean_bytes = row.calls == 0 ? 0 : bytes[name] / row.calls;
    operations_.set({name, 0}, row);
  }
}

}  // namespace qccl::dashboard
