// What a Communicator handle points to: one group of a context, put together of its parts.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "group/call_builder.h"
#include "group/call_poster.h"
#include "group/child_ids.h"
#include "group/detour.h"
#include "group/measured_calls.h"
#include "job/context.h"
#include "job/group_agreement.h"
#include "kernels/onebit/onebit.h"
#include "qccl/inside.h"

namespace qccl::internal {

// Memory for messages, kept between calls: 1/16 of the padded tensor for each call in flight. Thread-safe.
class OnebitMemory {
 public:
  struct Messages {
    std::vector<std::byte> outgoing;
    std::vector<std::byte> incoming;
    std::vector<kernels::SignedPart> parts;
  };
  std::unique_ptr<Messages> take();
  void give_back(std::unique_ptr<Messages> messages);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Messages>> free_;
};

// A call that is ready to be posted.
struct BuiltCall {
  std::shared_ptr<comm::Context> context;
  engine::CallArguments arguments;
};

// Thread-safe. Owned by the user's handles; the destructor waits for this group's operations (each has a deadline) and
// closes the group. Blocking calls throw their failure, others leave it in the Work's state.
class CommunicatorState {
 public:
  // Collective over the group.
  static Result<std::shared_ptr<CommunicatorState>> open(std::shared_ptr<comm::Context> context,
                                                         comm::GroupIdentity group,
                                                         const comm::GroupOrigin& origin = {});
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
  std::shared_ptr<WorkState> post_all(std::span<const CollectiveCall> calls);

  void group_start();
  std::shared_ptr<WorkState> group_end();
  // Throws misuse between group_start() and group_end(): `what` exchanges data, which a recorded call would not.
  void refuse_recording(const char* what) const;

  // Groups that are made of this group's ranks; see Communicator. split() returns null for a negative colour.
  std::shared_ptr<CommunicatorState> subgroup(const std::vector<int>& members, const std::string& name,
                                              const std::stop_token& stop);
  std::shared_ptr<CommunicatorState> split(int colour, int key);
  std::shared_ptr<CommunicatorState> dup();
  // Zeroed memory that the ranks of each host map, or ordinary memory where it cannot be shared. Collective over the
  // group. Throws Error; an exception that only this rank has aborts the group.
  std::shared_ptr<void> allocate_mapped(std::size_t bytes);

  // Calls that suit it go that way from now on, until close(). Throws misuse for a second one.
  void take_detour(std::shared_ptr<Detour> detour);
  bool has_detour() const { return has_detour_.load(std::memory_order_relaxed); }

  void abort(const std::string& reason);
  void close();

  OnebitMemory onebit_memory;

  const comm::GroupIdentity& group() const { return group_; }
  // Throws misuse once closed, and in a forked child.
  std::shared_ptr<comm::Context> context() const;
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
  std::shared_ptr<Detour> detour();
  // Null for a call without one.
  std::shared_ptr<Detour> detour_of(const CollectiveCall& call);
  template <class Call>
  BuiltCall build(const Call& call);
  template <class Call>
  engine::ArgumentsList build_all(std::span<const Call> calls);

  const comm::GroupIdentity group_;
  ChildIds child_ids_;
  comm::CallPoster poster_;

  mutable std::mutex mutex_;                // guards what follows
  std::shared_ptr<comm::Context> context_;  // null once close() has begun
  std::weak_ptr<comm::Context> closing_;    // while close() waits
  comm::CallBuilder builder_;
  comm::MeasuredCalls measured_;
  std::shared_ptr<Detour> detour_;
  std::atomic<bool> has_detour_{false};  // relaxed: a hint, for groups that never have one
};

// Gives a new group the settings of another.
void copy_settings(CommunicatorState& from, CommunicatorState& to);
// See Communicator::group_estimate().
double estimate_recorded(CommunicatorState& state);
// The group of all ranks of a job that begins. Collective over them.
Result<std::shared_ptr<CommunicatorState>> open_world(const std::shared_ptr<comm::Context>& context);
// Joins an open job, if options or environment name its doors; otherwise returns null. Throws Error.
std::shared_ptr<CommunicatorState> join_job(const InitOptions& options);
// See Communicator::use_inside().
void use_inside(CommunicatorState& state, const InsideFactory& make_inside);
// See Communicator::grow().
std::shared_ptr<CommunicatorState> grow_group(const std::shared_ptr<CommunicatorState>& state,
                                              const GrowOptions& options);
// The members that live, the same on all that return: the first half of shrink(), once in a group's life. Collective
// over them.
std::vector<GroupRank> agree_on_members(CommunicatorState& state, const ShrinkOptions& options);
// See Communicator::shrink().
std::shared_ptr<CommunicatorState> shrink_group(CommunicatorState& state, const ShrinkOptions& options);

}  // namespace qccl::internal
