// When two ranks make different calls of one number, each tells the others its call. After at most a second all fail
// with an error that names the calls and the ranks that made them, the minority last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/failure/failure_handler.h"

namespace qccl::engine {

// How long the exchange of calls may take.
inline constexpr Nanoseconds kMismatchPatience = std::chrono::seconds(1);

// A member's call of the sequence number in question.
struct CallReport {
  std::uint64_t fingerprint = 0;
  std::string description;
};

struct Mismatch {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  TimePoint deadline{};
  std::vector<int> ranks;                        // in the world, by group rank
  std::vector<std::optional<CallReport>> notes;  // by group rank

  bool complete() const;
  // "rank 0, 1 and 3 called all_reduce(...), rank 2 called broadcast(...)"; minorities last.
  std::string explain() const;
  // The rank that differs from a majority, or none.
  WorldRank minority_rank() const;
};

// One thread.
class MismatchDetector {
 public:
  MismatchDetector(EngineParts& parts, FailureHandler& failures) : parts_(parts), failures_(failures) {}

  // A peer's call of that number differs from this rank's, which is told to the members. Null if it is not known any
  // more, or the group has failed.
  Mismatch* begin(Group& group, std::uint64_t sequence);
  // A peer has told its call.
  void on_fingerprint(Group& group, const wire::FrameHeader& header, WorldRank peer, ConstBytes payload);
  // Fails the groups whose members have all told their calls, or whose time for that is over.
  void check();
  TimePoint next_deadline() const;
  void forget(std::uint64_t group);

 private:
  // This rank's call of a number, in flight or remembered.
  std::optional<PastCall> own_call(const Group& group, std::uint64_t sequence) const;

  EngineParts& parts_;
  FailureHandler& failures_;
  std::vector<Mismatch> mismatches_;
};

}  // namespace qccl::engine
