// How operations end and groups fail.
//
// The first failure of a group ends all its operations, is returned by every later call and is told to the other
// members. When the system refuses memory, nothing here needs any: detailed messages, and telling the peers, wait until
// there is some.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/frames/frame_sender.h"
#include "engine/state/control_queue.h"
#include "engine/state/ended_works.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_recorder.h"
#include "engine/state/operation_table.h"
#include "engine/state/round_clock.h"
#include "qccl/error.h"

namespace qccl::engine {

inline constexpr const char* kNoMemory =
    "the system refused memory; free some, or raise the limit of the process or its container";

// A poison's message is cut to this, so that it fits a small control frame.
inline constexpr std::size_t kMaxPoisonText = 1500;

// Ends operations and fails groups. What it is made of outlives it.
class FailureHandler {
 public:
  FailureHandler(const EngineOptions& options, const RoundClock& clock, GroupTable& groups, OperationTable& operations,
                 FrameSender& frame_sender, ControlQueue& control, const OperationRecorder& recorder,
                 CallLedger& ledger, EndedWorks& ended);

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

  const EngineOptions& options_;
  const RoundClock& clock_;
  GroupTable& groups_;
  OperationTable& operations_;
  FrameSender& frame_sender_;
  ControlQueue& control_;
  const OperationRecorder& recorder_;
  CallLedger& ledger_;
  EndedWorks& ended_;
  bool sweep_needed_ = false;
  bool any_failed_ = false;
  // Both are made while there is memory.
  internal::SharedFailure no_memory_;
  internal::SharedFailure closed_;
  // Groups never opened here, and their ranks, who have yet to be told; its room is reserved at the start.
  std::vector<std::pair<std::uint64_t, std::vector<int>>> refused_;
  internal::SharedFailure failure_;  // of all groups, for good
};

}  // namespace qccl::engine
