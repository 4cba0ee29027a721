// JobView's documents. Times are milliseconds since the job's first operation. Texts are foreign: the page shows them
// as text, never as markup.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dashboard/job_view.h"

namespace qccl::dashboard {
namespace {

using Json = nlohmann::ordered_json;

// A rank whose last operation is so much older than the newest one of the job is silent.
constexpr double kSilentMs = 2000;
constexpr std::size_t kMostStrokes = 4000;  // sent one by one; beyond that, as bins
constexpr std::int64_t kMostBins = 2000;
constexpr int kMostLanes = 128;
// base64url: a share of 0 to 63 63rds, or a kind, as one character.
constexpr char kDigits[] = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
constexpr char kFailedBin = '!';

// Names are the user's bytes, UTF-8 or not.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

double ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double ratio(std::uint64_t plain, std::uint64_t payload) {
  return payload == 0 ? 1 : static_cast<double>(plain) / static_cast<double>(payload);
}

Json history_of(const GaugeTable::Parameter& parameter) {
  Json points = Json::array();
  for (const GaugeRecord& point : parameter.history) {
    points.push_back({point.step, point.bits, point.nmse, point.residual});
  }
  return points;
}

}  // namespace

// The parts of the documents, made while JobView's mutex is held.
class JobDocuments {
 public:
  explicit JobDocuments(const JobView& view) : view_(view) {}

  Json ranks() const {
    Json ranks = Json::array();
    for (const auto& [number, rank] : view_.ranks_) ranks.push_back(rank_of(number, rank));
    return ranks;
  }

  Json missing() const {
    Json missing = Json::array();
    for (int rank = 0; rank < view_.world_; ++rank) {
      if (!view_.ranks_.contains(rank)) missing.push_back(rank);
    }
    return missing;
  }

  Json stragglers() const {
    const Stragglers::Recent recent = view_.stragglers_.recent();
    return {{"compared", view_.stragglers_.compared()},
            {"incomplete", view_.stragglers_.incomplete()},
            {"recent_rank", recent.rank},
            {"recent_last_in", recent.last_in},
            {"recent_compared", recent.compared},
            {"recent_blame", recent.blame},
            {"recent_waited_ms", recent.waited_for_ms},
            {"recent_latency_ms", recent.latency_ms}};
  }

  Json operations() const {
    Json operations = Json::array();
    for (const auto& [key, row] : view_.operations_.rows()) {
      const std::uint64_t succeeded = row.calls - row.failed;
      operations.push_back({{"name", key.first},
                            {"bytes", std::max(key.second, row.mean_bytes)},
                            {"compression", row.compression},
                            {"calls", row.calls},
                            {"failed", row.failed},
                            {"total_ms", row.total_ms},
                            {"p50_ms", row.times.percentile(0.5)},
                            {"p99_ms", row.times.percentile(0.99)},
                            {"busbw_gbps", succeeded == 0 ? 0 : row.busbw_gbps / static_cast<double>(succeeded)},
                            {"wire_bytes", row.wire_bytes},
                            {"ratio", ratio(row.plain_bytes, row.payload_bytes)}});
    }
    return operations;
  }

  Json lines() const {
    Json lines = Json::array();
    for (const JobView::Line& line : view_.lines_) {
      const LineStatus& status = line.status;
      lines.push_back(
          {line.rank, status.peer, status.bytes_per_second(), 1000 * status.round_trip_seconds, status.resent_packets});
    }
    return lines;
  }

 private:
  Json rank_of(int number, const JobView::Rank& rank) const {
    const bool is_live = !rank.live.state.empty();
    const std::int64_t heard = is_live && !rank.has_records ? rank.live.until : rank.last_ended;
    const double silent = heard == 0 ? 0 : ms(view_.end_ - heard);
    const char* const logged = !rank.error.empty() ? "failed" : silent > kSilentMs ? "silent" : "ok";
    const auto late = view_.stragglers_.ranks().find(number);
    const Stragglers::Rank own = late == view_.stragglers_.ranks().end() ? Stragglers::Rank{} : late->second;
    return {{"rank", number},
            {"host", rank.host},
            {"state", is_live ? rank.live.state : logged},
            {"doing", rank.live.text},
            {"busy", is_live ? Json(rank.live.busy) : Json()},
            {"silent_ms", silent},
            {"last", rank.last_name},
            {"last_number", rank.last_sequence},
            {"error", rank.error},
            {"operations", rank.operations},
            {"failed", rank.failed},
            {"wire_bytes", rank.wire_bytes},
            {"ratio", ratio(rank.plain_bytes, rank.payload_bytes)},
            {"last_in", own.last_in},
            {"waited_for_ms", own.waited_for_ms},
            {"waited_ms", own.waited_ms},
            {"dropped", rank.dropped}};
  }

  const JobView& view_;
};

std::string JobView::job_json() const {
  const std::lock_guard lock(mutex_);
  const JobDocuments parts(*this);
  return text_of({{"source", source_},
                  {"world", world_},
                  {"begin_unix_ms", ms(begin_)},
                  {"end", ms(end_ - begin_)},
                  {"kinds", kinds_},
                  {"ranks", parts.ranks()},
                  {"missing", parts.missing()},
                  {"stragglers", parts.stragglers()},
                  {"operations", parts.operations()},
                  {"hold_up", hold_up_},
                  {"lines", parts.lines()}});
}

std::string JobView::gauges_json() const {
  const std::lock_guard lock(mutex_);
  Json parameters = Json::array();
  for (const auto& [name, parameter] : gauges_.parameters()) {
    const GaugeRecord& last = parameter.last;
    parameters.push_back({{"name", name},
                          {"rank", parameter.rank},
                          {"compression", last.compression.to_string()},
                          {"count", last.count},
                          {"step", last.step},
                          {"bits", last.bits},
                          {"nmse", last.nmse},
                          {"residual", last.residual},
                          {"piles_up", parameter.piles_up()},
                          {"history", history_of(parameter)}});
  }
  return text_of({{"parameters", std::move(parameters)}, {"left_out", gauges_.left_out()}});
}

std::string JobView::messages_json() const {
  const std::lock_guard lock(mutex_);
  Json messages = Json::array();
  for (const Message& message : messages_) {
    messages.push_back({{"at", message.at == 0 ? 0 : ms(message.at - begin_)},
                        {"kind", message.kind},
                        {"text", message.text},
                        {"ranks", message.ranks},
                        {"count", message.count}});
  }
  return text_of(messages);
}

namespace {

Json strokes_of(const std::vector<Stroke>& strokes, std::int64_t begin) {
  Json drawn = Json::array();
  for (const Stroke& each : strokes) {
    drawn.push_back({ms(each.posted - begin), ms(each.started - begin), ms(each.ended - begin), each.kind,
                     each.failed ? 1 : 0, each.sequence});
  }
  return drawn;
}

// Two characters for each bin from `first` on: how busy, and with what.
std::string bins_of(const Timeline& timeline, std::size_t level, std::int64_t first, std::int64_t count) {
  std::string text;
  text.reserve(static_cast<std::size_t>(2 * count));
  for (std::int64_t index = first; index < first + count; ++index) {
    const Timeline::Bin bin = timeline.bin(level, index);
    const int level_of_use = bin.busy <= 0 ? 0 : std::clamp(static_cast<int>(bin.busy * 63 + 0.5F), 1, 63);
    text += kDigits[level_of_use];
    text += bin.failed ? kFailedBin : kDigits[bin.kind];
  }
  return text;
}

using Lanes = std::vector<std::pair<int, const Timeline*>>;  // rank and timeline

// All operations of the lanes one by one, unless they are too many or some are not kept.
std::optional<Json> strokes_of(const Lanes& lanes, const Span& span, std::int64_t begin) {
  Json drawn = Json::array();
  std::size_t room = kMostStrokes;
  for (const auto& [rank, timeline] : lanes) {
    const auto found = timeline->strokes(span, room);
    if (!found) return std::nullopt;
    room -= found->size();
    drawn.push_back({{"rank", rank}, {"strokes", strokes_of(*found, begin)}});
  }
  return drawn;
}

// The finest level that needs no more than so many bins and reaches back to the begin of the span.
std::size_t level_for(const Lanes& lanes, const Span& span, std::int64_t bins) {
  const auto is_enough = [&](std::size_t level) {
    return (span.to - span.from) / Timeline::width_ns(level) <= bins &&
           std::ranges::all_of(lanes, [&](const auto& lane) { return lane.second->reaches(level, span.from); });
  };
  std::size_t level = 0;
  while (level + 1 < Timeline::kLevels && !is_enough(level)) ++level;
  return level;
}

}  // namespace

std::string JobView::timeline_json(const Window& window) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t longest = std::max<std::int64_t>(end_ - begin_, 0) + Timeline::width_ns(Timeline::kLevels - 1);
  const Span span{begin_ + std::clamp<std::int64_t>(window.span.from, 0, longest),
                  begin_ + std::clamp<std::int64_t>(window.span.to, 0, longest)};
  Lanes lanes;
  int lane = 0;
  for (const auto& [rank, own] : ranks_) {
    const int place = lane++ - std::max(window.first_lane, 0);
    if (place >= 0 && place < std::min(window.lanes, kMostLanes)) lanes.emplace_back(rank, &own.timeline);
  }
  Json out{{"from", ms(span.from - begin_)}, {"to", ms(span.to - begin_)}};
  if (auto strokes = strokes_of(lanes, span, begin_)) {
    out["lanes"] = std::move(*strokes);
    return text_of(out);
  }
  const std::size_t level = level_for(lanes, span, std::clamp<std::int64_t>(window.bins, 1, kMostBins));
  const std::int64_t width = Timeline::width_ns(level);
  const std::int64_t first = span.from / width;
  const std::int64_t count = std::min(span.to / width - first + 1, kMostBins);
  out["bin"] = ms(width);
  out["first"] = ms(first * width - begin_);
  Json& drawn = out["lanes"] = Json::array();
  for (const auto& [rank, timeline] : lanes) {
    drawn.push_back({{"rank", rank}, {"bins", bins_of(*timeline, level, first, count)}});
  }
  return text_of(out);
}

}  // namespace qccl::dashboard
