// Ends operations and fails groups. The first failure of a group ends all its operations, is returned by every later
// call and is told to the other members.
//
// When the system refuses memory, nothing here needs any: detailed messages, and telling the peers, wait until there
// is some.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_parts.h"

namespace qccl::engine {

inline constexpr const char* kNoMemory =
    "the system refused memory; free some, or raise the limit of the process or its container";

// A poison's message is cut to this, so that it fits a small control frame.
inline constexpr std::size_t kMaxPoisonText = 1500;

// One thread.
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
  // Ends the operations of failed groups and tells their members, if anything has failed.
  void sweep();
  void poison_peers(const Group& group, std::string_view text);
  // The failure of the group that this one is being made from, if it fails this one too; else null.
  internal::SharedFailure failure_of_parent(const Group& opening) const;

  // The system refused memory for the group, or for its `operation` if that is not null.
  void run_out(Group& group, const Operation* operation);
  // The same where the group is not known: all fail for good, with failure_of_all(), which is null before.
  void abandon_all_groups();
  const internal::SharedFailure& failure_of_all() const { return failure_; }
  const internal::SharedFailure& no_memory() const { return no_memory_; }
  // Tells the other `ranks` of a group that this one never opened; takes no memory.
  void refuse(std::uint64_t id, std::vector<int>&& ranks);

  ErrorInfo failure_of(const Operation& operation, ErrorKind kind, const std::string& what) const;
  ErrorInfo group_error(const Group& group, ErrorKind kind, WorldRank peer, const std::string& what) const;

 private:
  void tell_members(Group& group);
  void tell_refusals();
  internal::SharedFailure memory_failure(const Group& group, const Operation* operation) const;
  void fail_all_groups();
  void withdraw_placed();

  EngineParts& parts_;
  bool sweep_needed_ = false;
  // Both are made while there is memory.
  internal::SharedFailure no_memory_;
  internal::SharedFailure closed_;
  std::vector<Group> refused_;       // never opened here, members not told yet; its room is reserved at the start
  internal::SharedFailure failure_;  // of all groups, for good
};

}  // namespace qccl::engine
