// Groups that go on after a failure: what is known of lost ranks, and the options of Communicator::shrink().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qccl {

// How certain it is that a lost rank has stopped.
enum class LossGrade : std::uint8_t {
  gone,    // its system closed the connection: it has ended
  left,    // it closed its communicator, or left the job in good order: certain
  silent,  // this rank or that one gave the other up: it may be stopped, cut off or slow, and may still be running
};

// "gone", "left", "silent"
const char* to_string(LossGrade grade);

// A member that failed() names.
struct LostRank {
  int rank = 0;  // in the group
  LossGrade grade = LossGrade::gone;
  std::string reason{};  // "was lost: closed the connection (end of file)"
};

// Which members may go on without ranks that may still be running.
enum class Quorum : std::uint8_t {
  // More than half of the old members, or the half that contains rank 0. No two parts of a group can both go on.
  majority,
  // Any. Only where something else makes sure that the others have stopped: otherwise each part of a network that falls
  // apart goes on by itself.
  any,
};

// The ranks that call give the same `without` and `quorum`.
struct ShrinkOptions {
  // Ranks of the group to leave out, whether they live or not. They need not call: those that live accept it by
  // themselves.
  std::vector<int> without{};
  Quorum quorum = Quorum::majority;
  // A member that is silent for this long counts as lost. Unset: QCCL_PEER_TIMEOUT, else 60 s.
  std::optional<std::chrono::milliseconds> patience{};
  // The time for the whole call. Unset: the group's timeout. Both times are positive.
  std::optional<std::chrono::milliseconds> timeout{};
};

}  // namespace qccl
