#include "dashboard/timeline.h"

#include <algorithm>

namespace qccl::dashboard {
namespace {

std::size_t slot(std::int64_t index) { return static_cast<std::size_t>(index % Timeline::kBinsKept); }

// A kind wins the bin if its operations took more of it than all others together; a close race may go to another one.
void vote(Timeline::Bin& bin, std::uint8_t kind, float weight) {
  if (bin.kind == kind) {
    bin.kind_weight += weight;
  } else if (bin.kind_weight >= weight) {
    bin.kind_weight -= weight;
  } else {
    bin.kind = kind;
    bin.kind_weight = weight - bin.kind_weight;
  }
}

}  // namespace

void Timeline::add(const Stroke& stroke) {
  // A trace has operations by their begin, so those that overlap end in another order.
  strokes_.insert(std::ranges::upper_bound(strokes_, stroke.ended, {}, &Stroke::ended), stroke);
  keep_strokes(strokes_kept_);
  for (std::size_t level = 0; level < kLevels; ++level) add_to(levels_[level], width_ns(level), stroke, 1);
}

void Timeline::add_share(const Span& span, float share, std::uint8_t kind) {
  const Stroke stroke{.posted = span.from, .started = span.from, .ended = span.to, .kind = kind};
  dropped_until_ = std::max(dropped_until_, span.to);
  for (std::size_t level = 0; level < kLevels; ++level) add_to(levels_[level], width_ns(level), stroke, share);
}

void Timeline::keep_strokes(std::size_t strokes_kept) {
  strokes_kept_ = strokes_kept;
  while (strokes_.size() > strokes_kept_) {
    dropped_until_ = std::max(dropped_until_, strokes_.front().ended);
    strokes_.pop_front();
  }
}

void Timeline::make_room(Level& level, std::int64_t first, std::int64_t last) {
  if (level.bins.empty()) {
    level.bins.resize(static_cast<std::size_t>(kBinsKept));
    level.end = first;
  }
  if (last < level.end) return;
  const std::int64_t fresh = std::max(level.end, last + 1 - kBinsKept);
  for (std::int64_t index = fresh; index <= last; ++index) {
    Bin& bin = level.bins[slot(index)];
    level.dropped |= bin.busy > 0;
    bin = {};
  }
  level.dropped |= fresh > level.end;
  level.end = last + 1;
}

void Timeline::add_to(Level& level, std::int64_t width, const Stroke& stroke, float share) {
  const std::int64_t last = std::max<std::int64_t>(stroke.ended, 0) / width;
  std::int64_t first = std::clamp<std::int64_t>(stroke.posted / width, 0, last);
  make_room(level, std::max(first, last + 1 - kBinsKept), last);
  level.dropped |= first < level.end - kBinsKept;
  first = std::max(first, level.end - kBinsKept);
  for (std::int64_t index = first; index <= last; ++index) {
    const std::int64_t begin = std::max(stroke.posted, index * width);
    const std::int64_t end = std::min(stroke.ended, (index + 1) * width);
    // An operation of no length still leaves a trace.
    const float part = share * static_cast<float>(std::max<std::int64_t>(end - begin, 1)) / static_cast<float>(width);
    Bin& bin = level.bins[slot(index)];
    bin.busy += part;
    bin.failed |= stroke.failed;
    vote(bin, stroke.kind, part);
  }
}

std::optional<std::vector<Stroke>> Timeline::strokes(const Span& span, std::size_t most) const {
  if (dropped_until_ >= span.from) return std::nullopt;
  std::vector<Stroke> found;
  auto each = std::ranges::lower_bound(strokes_, span.from, {}, &Stroke::ended);
  for (; each != strokes_.end(); ++each) {
    if (each->posted > span.to) continue;
    if (found.size() == most) return std::nullopt;
    found.push_back(*each);
  }
  return found;
}

bool Timeline::reaches(std::size_t level, std::int64_t from) const {
  const Level& own = levels_[level];
  return !own.dropped || from / width_ns(level) >= own.end - kBinsKept;
}

Timeline::Bin Timeline::bin(std::size_t level, std::int64_t index) const {
  const Level& own = levels_[level];
  const bool is_kept = !own.bins.empty() && index >= 0 && index < own.end && index >= own.end - kBinsKept;
  return is_kept ? own.bins[slot(index)] : Bin{};
}

}  // namespace qccl::dashboard
