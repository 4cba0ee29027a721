// What a Communicator handle points to: one group of a context, put together of its parts.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "comm/call_poster.h"
#include "comm/child_groups.h"
#include "comm/context.h"
#include "comm/mapped_regions.h"
#include "comm/onebit_allreduce.h"
#include "comm/resolve/call_builder.h"

namespace qccl::internal {

// A call that is ready to be posted.
struct BuiltCall {
  std::shared_ptr<comm::Context> context;
  engine::CallArguments arguments;
};

// Thread-safe. Owned by the user's handles; the destructor waits for this group's operations (each has a deadline) and
// closes the group. Blocking calls throw their failure, others leave it in the Work's state.
class CommunicatorState {
 public:
  // Collective over the group. `parent` is the group from which it is made, if any: a failure of the parent ends the
  // wait for the other ranks.
  static Result<std::shared_ptr<CommunicatorState>> open(std::shared_ptr<comm::Context> context,
                                                         comm::GroupIdentity group,
                                                         std::optional<std::uint64_t> parent = std::nullopt);
  ~CommunicatorState() { close(); }

  // A CollectiveCall or MessageCall. Between group_start() and group_end() of the calling thread these only record the
  // call. run() returns the rank that a received message came from, else -1.
  template <class Call>
  int run(const Call& call);
  template <class Call>
  std::shared_ptr<WorkState> post(const Call& call);
  // Several calls as one; run_all() returns the last call's result.
  template <class Call>
  int run_all(std::span<const Call> calls);
  std::shared_ptr<WorkState> post_all(std::span<const comm::CollectiveCall> calls);

  void group_start();
  std::shared_ptr<WorkState> group_end();
  // Throws misuse between group_start() and group_end(): `what` exchanges data, which a recorded call would not.
  void refuse_recording(const char* what) const;

  void abort(const std::string& reason);
  void close();

  const comm::GroupIdentity& group() const { return group_; }
  // Throws misuse once closed, and in a forked child.
  std::shared_ptr<comm::Context> context() const;
  comm::MappedRegions& regions() { return regions_; }
  OnebitMemory& onebit_memory() { return onebit_memory_; }
  comm::ChildIds& child_ids() { return child_ids_; }
  // Calls use(CallBuilder&) under the lock that guards it, and returns the result.
  template <class Use>
  auto with_builder(const Use& use) {
    const std::lock_guard lock(mutex_);
    return use(builder_);
  }

 private:
  CommunicatorState(const std::shared_ptr<comm::Context>& context, comm::GroupIdentity group,
                    const comm::GroupAgreement& agreement);
  const std::shared_ptr<comm::Context>& usable_context() const;
  template <class Call>
  BuiltCall build(const Call& call);
  template <class Call>
  engine::ArgumentsList build_all(std::span<const Call> calls);
  std::optional<comm::TimedCall> begin_timed(const comm::CollectiveCall& call);

  const comm::GroupIdentity group_;
  comm::MappedRegions regions_;
  OnebitMemory onebit_memory_;
  comm::ChildIds child_ids_;
  comm::CallPoster poster_;

  mutable std::mutex mutex_;                // guards what follows
  std::shared_ptr<comm::Context> context_;  // null once closed
  comm::CallBuilder builder_;
};

}  // namespace qccl::internal
