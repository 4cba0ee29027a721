// How operations end and groups fail: by themselves, by calls that differ between ranks, by peers.
//
// The first failure of a group ends all its operations, is returned by every later call and is told to the other
// members. When the system refuses memory, nothing here needs any: detailed messages, and telling the peers, wait until
// there is some.
//
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_parts.h"

namespace qccl::engine {

inline constexpr const char* kNoMemory =
    "the system refused memory; free some, or raise the limit of the process or its container";

// A poison's message is cut to this, so that it fits a small control frame.
inline constexpr std::size_t kMaxPoisonText = 1500;

// Ends operations and fails groups.
class FailureHandler {
 public:
  explicit FailureHandler(EngineParts& parts);

  // Ends the operation, well if `failure` is null, and lets go of the caller's memory. Takes memory only for the log.
  void complete(Operation& operation, internal::SharedFailure failure);

  // The group's first failure. Its operations end at the next sweep().
  void fail(Group& group, ErrorInfo failure, bool tell_peers = true);
  // The same with failure_of(operation, ...); `peer` is to blame if it is known.
  void fail(const Operation& operation, ErrorKind kind, const std::string& what, WorldRank peer = {},
            bool tell_peers = true);
  void close(Group& group);
  // The group goes on without this rank, or as a new one: `failure` stands in place of an earlier one.
  void end(Group& group, ErrorInfo failure);
  // Ends the operations of failed groups and tells their members, if anything has failed.
  void sweep();
  // To the other `ranks` (in the world) of the group.
  void poison_peers(std::uint64_t group, const std::vector<int>& ranks, std::string_view text);
  // The failure of the group that this one is being made from, if it fails this one too; else null.
  internal::SharedFailure failure_of_parent(const Group& opening) const;

  // The system refused memory for the group, or for its `operation` if that is not null.
  void run_out(Group& group, const Operation* operation);
  // The same where the group is not known: all fail for good, with failure_of_all(), which is null before.
  void abandon_all_groups();
  const internal::SharedFailure& failure_of_all() const { return failure_; }
  const internal::SharedFailure& no_memory() const { return no_memory_; }
  // Any group has failed so far.
  bool any_failed() const { return any_failed_; }
  // Tells the other `ranks` of a group that this one never opened; takes no memory.
  void refuse(std::uint64_t id, std::vector<int>&& ranks);

  ErrorInfo failure_of(const Operation& operation, ErrorKind kind, const std::string& what) const;
  ErrorInfo group_error(const Group& group, ErrorKind kind, WorldRank peer, const std::string& what) const;

 private:
  void end_watchers(Group& group);
  void tell_members(Group& group);
  bool poison_if_possible(std::uint64_t group, const std::vector<int>& ranks, const ErrorInfo& failure);
  void tell_refusals();
  internal::SharedFailure memory_failure(const Group& group, const Operation* operation) const;
  void fail_all_groups();

  EngineParts& parts_;
  bool sweep_needed_ = false;
  bool any_failed_ = false;
  // Both are made while there is memory.
  internal::SharedFailure no_memory_;
  internal::SharedFailure closed_;
  // Groups never opened here, and their ranks, who have yet to be told; its room is reserved at the start.
  std::vector<std::pair<std::uint64_t, std::vector<int>>> refused_;
  internal::SharedFailure failure_;  // of all groups, for good
};

// How long the exchange of calls may take: this, or three round trips where ranks are far apart.
inline constexpr Nanoseconds kMismatchPatience = std::chrono::seconds(1);

// When two ranks make different calls of one number, each tells the others its call. After that time at the latest all
// fail with an error that names the calls and the ranks that made them, the minority last.
class MismatchDetector {
 public:
  MismatchDetector(EngineParts& parts, FailureHandler& failures) : parts_(parts), failures_(failures) {}

  // A peer's call of that number differs from this rank's, which is told to the members.
  void begin(Group& group, std::uint64_t sequence) { find_or_begin(group, sequence); }
  // A peer has told its call.
  void on_fingerprint(Group& group, const wire::FrameHeader& header, WorldRank peer, ConstBytes payload);
  // Fails the groups whose members have all told their calls, or whose time for that is over.
  void check();
  TimePoint next_deadline() const;
  void forget(std::uint64_t group);

 private:
  // A member's call of the sequence number in question.
  struct CallReport {
    std::uint64_t fingerprint = 0;
    std::string description;
  };
  struct Mismatch {
    std::uint64_t group = 0;
    std::uint64_t sequence = 0;
    TimePoint deadline{};
    std::vector<std::optional<CallReport>> notes;  // by group rank
  };

  // Null if this rank's call is not known any more, or the group has failed.
  Mismatch* find_or_begin(Group& group, std::uint64_t sequence);
  void fail(Group& group, const Mismatch& mismatch);
  // This rank's call of a number, in flight or remembered.
  std::optional<PastCall> own_call(const Group& group, std::uint64_t sequence) const;

  EngineParts& parts_;
  FailureHandler& failures_;
  std::vector<Mismatch> mismatches_;
};

// What peers do to a group's operations: they are lost, leave, fall silent, miss a deadline or fail themselves.
class PeerFailures {
 public:
  PeerFailures(EngineParts& parts, FailureHandler& failures) : parts_(parts), failures_(failures) {}

  // True if connections have ended.
  bool look_for_losses();
  // Gives up a peer whose connection may still work: tells it why, then disconnects it.
  void give_up(WorldRank peer, ErrorKind kind, const std::string& what);
  // The peer has given this rank up.
  void on_given_up(WorldRank peer, ConstBytes payload);
  void on_goodbye(WorldRank peer);
  // A member tells why the group has failed.
  void on_poison(Group& group, WorldRank peer, ConstBytes payload);
  // Fails the operation if it needs a peer that is lost or has left.
  void look_for_absent(Operation& operation);
  void check_deadlines();
  void check_silent_peers();

 private:
  void miss_deadline(const Operation& operation);
  bool still_moves(const Operation& operation, const std::vector<GroupRank>& awaited) const;
  struct Loss {
    WorldRank peer;
    LossGrade grade = LossGrade::silent;
    ErrorKind kind = ErrorKind::peer_lost;
    std::string what{};
  };
  void lose(const Loss& loss, bool tell_others = true);

  EngineParts& parts_;
  FailureHandler& failures_;
};

}  // namespace qccl::engine
