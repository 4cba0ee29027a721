// Ends operations, and fails groups: the first failure of a group ends all its operations, is what every later call
// returns, and is told to the other members.
//
// Where the system refuses memory, nothing here needs any: words that say where it happened, and telling the peers,
// wait until there is some.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_parts.h"

namespace qccl::engine {

inline constexpr const char* kNoMemory =
    "the system refused memory; free some, or raise the limit of the process or its container";

// One thread.
class FailureHandler {
 public:
  explicit FailureHandler(EngineParts& parts);

  // The operation has ended, well if `failure` is null: lets go of the caller's memory. Takes memory only for the log.
  void complete(Operation& operation, internal::SharedFailure failure);

  // The group's first failure. Its operations end at the next sweep().
  void fail(Group& group, ErrorInfo failure, bool tell_peers);
  // Fails all groups without telling anybody: the process is closing.
  void shut_down(const ErrorInfo& reason);
  void close(Group& group);
  // Ends the operations of failed groups and tells their members, if anything has failed.
  void sweep();
  void poison_peers(const Group& group, std::string_view text);
  // The failure of the group that this one is being made from, if it fails this one too; else null.
  internal::SharedFailure failure_of_parent(const Group& opening) const;

  // The system refused memory for the group, or for this operation of it, or for something that is not known.
  void run_out(Group& group, const Operation* operation);
  void abandon_all_groups();
  // Why all groups have failed for good, or null.
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
  // Made while there is memory.
  internal::SharedFailure no_memory_;
  internal::SharedFailure closed_;
  std::vector<Group> refused_;       // never opened here, their members not told yet; has its room from the beginning
  internal::SharedFailure failure_;  // of all groups, for good
};

}  // namespace qccl::engine
