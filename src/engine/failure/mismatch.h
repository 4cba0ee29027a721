// When two ranks call different things: each tells the others its call, and after at most a second
// everybody fails with an error that names the calls and the odd ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rank.h"

namespace qccl::engine {

// A member's call of the sequence number in question.
struct CallReport {
  std::uint64_t fingerprint = 0;
  std::string description;
};

// How long the exchange of calls may take.
inline constexpr Nanoseconds kMismatchPatience = std::chrono::seconds(1);
inline constexpr std::size_t kMaxDescriptionBytes = 256;
// A poison's message is cut to this, so that it fits a small control frame.
inline constexpr std::size_t kMaxPoisonText = 1500;

struct Mismatch {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  TimePoint deadline{};
  std::vector<int> ranks;                        // in the world, by group rank
  std::vector<std::optional<CallReport>> notes;  // by group rank

  bool complete() const;
  // "rank 0, 1 and 3 called all_reduce(...), rank 2 called broadcast(...)"; the odd ones last.
  std::string explain() const;
  // The rank that differs from a majority, or none.
  WorldRank minority_rank() const;
};

}  // namespace qccl::engine
