// Counts the calls of a rank as they end, whether or not anybody asks, and the time in which any is under way.
//
// Small calls on the board take less than a microsecond, of which a look at the clock is a tenth: of those that end at
// once, every 64th is timed and counts 64 times. One that lasts is timed by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "qccl/types.h"

namespace qccl::engine {

struct CallArguments;

// The collectives, then send and recv.
inline constexpr std::size_t kSendKind = std::size(kEveryCollective);
inline constexpr std::size_t kRecvKind = kSendKind + 1;
inline constexpr std::size_t kCallKinds = kRecvKind + 1;
std::string_view call_kind_name(std::size_t kind);

struct CallTotals {
  std::uint64_t calls = 0;  // that ended well
  std::uint64_t failures = 0;
  std::uint64_t bytes = 0;  // of inputs
  std::uint64_t payload_bytes = 0;
  std::uint64_t plain_bytes = 0;
  Nanoseconds time{};
};

std::size_t call_kind(const CallArguments& arguments);

// Of all groups of one name, one after another; outlives them.
struct GroupTotals {
  int size = 1;  // of the last
  std::array<CallTotals, kCallKinds> by_kind{};
};
using NamedTotals = std::pair<const std::string, GroupTotals>;

// A call at its end.
struct CallEnd {
  NamedTotals& group;
  std::uint64_t number = 0;
  std::size_t kind = 0;
  bool counts = true;  // false: the library's own
  bool well = true;
  std::uint64_t bytes = 0;  // of the input
  std::uint64_t payload_bytes = 0;
  std::uint64_t plain_bytes = 0;
};

// From when a call is timed, and how many it stands for; 0: it is not.
struct CallTimer {
  TimePoint since{};
  unsigned weight = 0;
};

// One thread. Only open() allocates.
class CallLedger {
 public:
  static constexpr std::size_t kMostNames = 256;  // of groups; those beyond share one row
  static constexpr unsigned kSampled = 64;

  struct Last {
    const std::string* group = nullptr;  // null: no call has ended
    std::uint64_t number = 0;
    std::size_t kind = 0;
    TimePoint ended{};  // unset until the round after
  };

  // The row for a group of that name, whose calls count from now on.
  NamedTotals& open(const std::string& name, int size);

  // Whether to time this call on the board.
  bool samples() { return ++board_calls_ % kSampled == 0; }
  // Timed calls have begun.
  void begin(TimePoint now, std::size_t calls = 1) {
    if (under_way_ == 0 && calls > 0) busy_since_ = now;
    under_way_ += calls;
  }
  // The call has ended, at `now` if it was timed.
  void end(const CallEnd& call, const CallTimer& timer, TimePoint now) {
    if (timer.weight > 0) stop(timer, now);
    count(call, timer.weight * (now - timer.since));
    last_ = {&call.group.first, call.number, call.kind, timer.weight > 0 ? now : TimePoint{}};
  }
  // A round of progress: calls that ended before it without a look at the clock ended about now.
  void note_round(TimePoint now) {
    if (last_.ended == TimePoint{}) last_.ended = now;
  }

  const std::map<std::string, GroupTotals>& groups() const { return groups_; }
  const Last& last() const { return last_; }
  Nanoseconds busy(TimePoint now) const { return busy_ + (under_way_ > 0 ? now - busy_since_ : Nanoseconds{}); }

 private:
  void stop(const CallTimer& timer, TimePoint now) {
    if (timer.weight == 1 && --under_way_ == 0) busy_ += now - busy_since_;
    if (timer.weight > 1 && under_way_ == 0) busy_ += timer.weight * (now - timer.since);
  }
  static void count(const CallEnd& call, Nanoseconds time) {
    if (!call.counts) return;
    CallTotals& totals = call.group.second.by_kind[call.kind];
    ++(call.well ? totals.calls : totals.failures);
    totals.bytes += call.bytes;
    totals.payload_bytes += call.payload_bytes;
    totals.plain_bytes += call.plain_bytes;
    totals.time += time;
  }

  std::map<std::string, GroupTotals> groups_;
  Last last_;
  std::size_t under_way_ = 0;  // timed calls
  TimePoint busy_since_{};     // while there are any
  Nanoseconds busy_{};         // before
  unsigned board_calls_ = 0;
};

}  // namespace qccl::engine
