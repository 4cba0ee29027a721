#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/act/failure_handler.h"
#include "engine/act/frame_dispatcher.h"
#include "engine/act/group_shrinker.h"
#include "engine/act/mismatch_detector.h"
#include "engine/state/control_queue.h"
#include "engine/state/ended_works.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_table.h"
#include "qccl/status.h"
#include "transport/transport.h"

namespace qccl::engine {

// Opens and closes groups. Where that is refused memory, it throws std::bad_alloc and has done nothing.
class GroupLifecycle {
 public:
  GroupLifecycle(const EngineOptions& options, Transport& transport, GroupTable& groups, OperationTable& operations,
                 ControlQueue& control, EndedWorks& ended, FailureHandler& failures, MismatchDetector& mismatches,
                 GroupShrinker& shrinker, FrameDispatcher& dispatcher, CallLedger& ledger)
      : options_(options),
        transport_(transport),
        groups_(groups),
        operations_(operations),
        control_(control),
        ended_(ended),
        failures_(failures),
        mismatches_(mismatches),
        shrinker_(shrinker),
        dispatcher_(dispatcher),
        ledger_(ledger) {}

  // A group of `ranks` (world ranks, this one among them). InvalidArgument if the id is taken. Where members of the
  // group `parent` make it together, a failure of that group refuses it, and fails it until end_opening(): some members
  // may never open it. Only the loss of a rank that is not among `ranks` does neither.
  Status open(std::uint64_t id, std::string name, std::vector<int> ranks,
              std::optional<std::uint64_t> parent = std::nullopt);
  // All members have opened it.
  void end_opening(std::uint64_t id);
  // Takes no memory.
  void close(std::uint64_t id);
  // Fails a group that this rank has no memory for on its other `ranks` (world ranks), which have opened it or will.
  // Closes it here. Takes no memory, and tries until all are notified, for kMaxRefusals groups at a time.
  void refuse(std::uint64_t id, std::vector<int>&& ranks);
  // Fails the group here and, by a poison frame, on its other members.
  void fail(std::uint64_t id, ErrorInfo failure);
  // The same where a call of several operations has no memory to go on.
  void run_out_of_memory(std::uint64_t id);

  // Takes a board cell for the group, if the transport has a free one. use_board() then says whether all members have.
  bool prepare_board(std::uint64_t id);
  void use_board(std::uint64_t id, bool use);
  bool has_board(std::uint64_t id) const;

  // Completes `work` with the group's failure, at once if there is one, or well when the group is closed.
  void notify_when_failed(std::uint64_t id, std::shared_ptr<internal::WorkState> work);
  // Completes `work` once the group has no operation in flight. Takes no memory, once for each open group.
  void notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work);
  // Completes the Works of groups that are quiet now.
  void notify_quiet();

 private:
  const EngineOptions& options_;
  Transport& transport_;
  GroupTable& groups_;
  OperationTable& operations_;
  ControlQueue& control_;
  EndedWorks& ended_;
  FailureHandler& failures_;
  MismatchDetector& mismatches_;
  GroupShrinker& shrinker_;
  FrameDispatcher& dispatcher_;
  CallLedger& ledger_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<internal::WorkState>>> quiet_waiters_;
};

}  // namespace qccl::engine
