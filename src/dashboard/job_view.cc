#include "dashboard/job_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "dashboard/shortened.h"

namespace qccl::dashboard {
namespace {

// Operations kept one by one, of all ranks together: some 100 MB.
constexpr std::size_t kStrokes = 2'000'000;
constexpr std::size_t kFewestStrokes = 1024;
constexpr std::size_t kMostRanks = 4096;  // files may name any
constexpr std::size_t kMostMessages = 200;
constexpr std::size_t kMostKinds = 63;  // the last stands for all others
constexpr std::size_t kMostGroups = 1000;
constexpr std::uint64_t kMostCodecChanges = 20;
constexpr std::int64_t kSameMessage = 10'000'000'000;  // apart, by which equal messages are one

// A time on the job's axis. Files may hold any numbers, whose sums and differences must not overflow.
std::int64_t moved(std::int64_t time, std::int64_t offset) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;  // 2043
  return std::max<std::int64_t>(std::clamp(time, -kMost, kMost) + std::clamp(offset, -kMost, kMost), 0);
}

std::string without_shrunk(std::string name) {
  static constexpr std::string_view kSuffix = "/shrunk";
  while (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
  return name;
}

}  // namespace

// ---- Records

void JobView::changed(std::uint64_t Versions::*document) {
  ++(versions_.*document);
  news_.notify_all();
}

void JobView::add_rank(const RankLog& head) {
  const std::lock_guard lock(mutex_);
  if (head.rank < 0 || (ranks_.size() >= kMostRanks && !ranks_.contains(head.rank))) return;
  const auto [found, is_new] = ranks_.try_emplace(head.rank);
  Rank& own = found->second;
  if (!head.host.empty()) own.host = shortened(head.host);
  own.dropped = head.dropped;
  world_ = std::clamp(head.world, world_, static_cast<int>(kMostRanks));
  if (!own.has_records) {
    own.offset = head.clock.empty() ? head.unix_offset_ns
                                    : clock_offsets_.try_emplace(head.clock, head.unix_offset_ns).first->second;
  }
  if (is_new) {
    const std::size_t each = std::max(kFewestStrokes, kStrokes / ranks_.size());
    for (auto& [rank, other] : ranks_) other.timeline.keep_strokes(each);
  }
  changed(&Versions::job);
  for (const OperationRecord& record : head.records) add_locked(head.rank, record);
}

std::uint8_t JobView::kind_of(const std::string& name) {
  auto found = std::ranges::find(kinds_, name);
  if (found == kinds_.end() && kinds_.size() < kMostKinds) {
    kinds_.push_back(kinds_.size() + 1 == kMostKinds ? OperationTable::kOthers : shortened(name));
    found = kinds_.end() - 1;
  }
  return static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(found - kinds_.begin(), kMostKinds - 1));
}

void JobView::add(int rank, const OperationRecord& record) {
  const std::lock_guard lock(mutex_);
  add_locked(rank, record);
}

void JobView::add_locked(int rank, const OperationRecord& record) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  Rank& own = found->second;
  const Stroke stroke = stroke_of(record, own.offset);
  own.timeline.add(stroke);
  own.has_records = true;
  add_sums(own, record);
  own.last_ended = std::max(own.last_ended, stroke.ended);
  begin_ = begin_ == 0 ? stroke.posted : std::min(begin_, stroke.posted);
  end_ = std::max(end_, stroke.ended);
  stragglers_.add(rank, record);
  watch_group(rank, record, stroke.ended);
  const auto before = operations_.add(record);
  if (before && operations_.rows().at({record.name, record.bytes}).changes <= kMostCodecChanges) {
    say({stroke.ended,
         "codec",
         fmt::format("{} of {} bytes: {}, before {}", shortened(record.name), record.bytes,
                     record.compression.to_string(), *before),
         {rank}});
  }
  if (!record.error.empty()) {
    say({stroke.ended, "failure", fmt::format("{} #{}: {}", own.last_name, record.sequence, own.error), {rank}});
  }
  changed(&Versions::job);
}

Stroke JobView::stroke_of(const OperationRecord& record, std::int64_t offset) {
  const std::int64_t ended = moved(record.times.ended_ns, offset);
  const std::int64_t posted = std::min(moved(record.times.posted_ns, offset), ended);
  const std::int64_t started = record.times.started_ns == 0 ? posted : moved(record.times.started_ns, offset);
  return {.posted = posted,
          .started = std::clamp(started, posted, ended),
          .ended = ended,
          .sequence = record.sequence,
          .kind = kind_of(record.name),
          .failed = !record.error.empty()};
}

void JobView::add_sums(Rank& own, const OperationRecord& record) {
  ++own.operations;
  own.failed += record.error.empty() ? 0 : 1;
  own.wire_bytes += record.wire_bytes;
  own.plain_bytes += record.plain_bytes;
  own.payload_bytes += record.payload_bytes;
  own.last_name = shortened(record.name);
  own.last_sequence = record.sequence;
  own.error = shortened(record.error);
}

// Names the first group of each size after one that had the same name before "/shrunk".
void JobView::watch_group(int rank, const OperationRecord& record, std::int64_t at) {
  const std::string base = without_shrunk(record.group);
  if (groups_.size() >= kMostGroups && !groups_.contains(base)) return;
  Groups& own = groups_[base];
  if (own.ids.size() >= kMostGroups || !own.ids.insert(record.group_id).second) return;
  const int before = std::exchange(own.size, record.group_size);
  if (before == 0 || before == record.group_size) return;
  say({at,
       record.group_size < before ? "shrink" : "grow",
       fmt::format("group {}: {} ranks, before {}", shortened(base), record.group_size, before),
       {rank}});
}

void JobView::add(int rank, const GaugeRecord& gauge) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  const std::int64_t at = moved(gauge.ended_ns, found->second.offset);
  if (gauges_.add(rank, gauge)) {
    say({at,
         "residual",
         fmt::format("{}: the residual is {:.1f} times the gradient in step {}: what is not sent piles "
                     "up; give the parameter more bits",
                     shortened(gauge.name), gauge.residual, gauge.step),
         {rank}});
  }
  changed(&Versions::gauges);
}

void JobView::add(int rank, const RoundRecord& round) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || rank != ranks_.begin()->first) return;
  say({moved(round.ended_ns, found->second.offset),
       "round",
       fmt::format("outer round {} fragment {}: {} bytes, {:.3f} s waited, {:.0f} % computing", round.round,
                   round.fragment, round.bytes, round.seconds_waited, 100 * round.computing()),
       {rank}});
}

void JobView::say(Message message) {
  const auto same = std::ranges::find_if(messages_, [&](const Message& each) {
    return each.kind == message.kind && each.text == message.text && std::abs(each.at - message.at) < kSameMessage;
  });
  if (same != messages_.end()) {
    same->ranks.merge(message.ranks);
    ++same->count;
  } else {
    messages_.push_back(std::move(message));
    if (messages_.size() > kMostMessages) messages_.pop_front();
  }
  changed(&Versions::messages);
}

void JobView::add_message(const std::string& kind, const std::string& text, int rank) {
  const std::lock_guard lock(mutex_);
  say({end_, kind, shortened(text), {rank}});
}

void JobView::set_source(const std::string& source) {
  const std::lock_guard lock(mutex_);
  source_ = shortened(source);
  changed(&Versions::job);
}

void JobView::clear() {
  const std::lock_guard lock(mutex_);
  world_ = 0;
  begin_ = end_ = 0;
  ranks_.clear();
  clock_offsets_.clear();
  kinds_.clear();
  groups_.clear();
  stragglers_ = {};
  operations_ = {};
  gauges_ = {};
  messages_.clear();
  hold_up_.clear();
  lines_.clear();
  for (const auto document : {&Versions::job, &Versions::gauges, &Versions::messages}) changed(document);
}

JobView::Versions JobView::versions() const {
  const std::lock_guard lock(mutex_);
  return versions_;
}

JobView::Versions JobView::wait(const Versions& seen, std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, patience, [&] { return versions_ != seen; });
  return versions_;
}

}  // namespace qccl::dashboard
