// When one rank communicated, at every zoom: its latest operations one by one, and bins of all of them in levels, each
// four times as wide as the one before. Memory is bounded whatever the rate of calls and the length of the job.
//
// Times are nanoseconds on one axis for all ranks of a job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

namespace qccl::dashboard {

// An operation as it is drawn.
struct Stroke {
  std::int64_t posted = 0;
  std::int64_t started = 0;  // posted if its data never moved
  std::int64_t ended = 0;
  std::uint64_t sequence = 0;
  std::uint8_t kind = 0;
  bool failed = false;
};

struct Span {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

class Timeline {
 public:
  struct Bin {
    float busy = 0;         // share of its width inside an operation; above 1 where operations overlap
    float kind_weight = 0;  // of a majority vote by time (Boyer and Moore)
    std::uint8_t kind = 0;  // the winner
    bool failed = false;
  };

  // 1 ms to 262 s in ten levels of 2048 bins: two seconds to six days.
  static constexpr std::size_t kLevels = 10;
  static constexpr std::int64_t kBinsKept = 2048;
  static constexpr std::int64_t width_ns(std::size_t level) { return 1'000'000LL << (2 * level); }

  // Keeps the last `strokes_kept` operations one by one.
  explicit Timeline(std::size_t strokes_kept) : strokes_kept_(strokes_kept) {}

  void add(const Stroke& stroke);
  // Of a time whose operations are not known one by one: the share of it that they took, with one of their kinds.
  void add_share(const Span& span, float share, std::uint8_t kind);

  // The operations that overlap `span`, by their end; nothing if they are more than `most`, or some are not kept.
  std::optional<std::vector<Stroke>> strokes(const Span& span, std::size_t most) const;
  // Whether the level's bins reach back to `from`.
  bool reaches(std::size_t level, std::int64_t from) const;
  // The bin of that index (time / width); an empty one where there is none.
  Bin bin(std::size_t level, std::int64_t index) const;
  // Lets the rank keep fewer operations, where more ranks share the memory.
  void keep_strokes(std::size_t strokes_kept);

 private:
  struct Level {
    std::int64_t end = 0;  // index after the newest bin
    bool dropped = false;  // bins, to make room
    std::vector<Bin> bins;
  };

  static void add_to(Level& level, std::int64_t width, const Stroke& stroke, float share);
  static void make_room(Level& level, std::int64_t first, std::int64_t last);

  std::size_t strokes_kept_;
  std::int64_t dropped_until_ = std::numeric_limits<std::int64_t>::min();  // the latest end of one that made room
  std::deque<Stroke> strokes_;                                             // by their end
  std::array<Level, kLevels> levels_;
};

}  // namespace qccl::dashboard
