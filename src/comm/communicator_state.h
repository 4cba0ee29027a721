// What a Communicator handle points to: one group of a context.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/context.h"
#include "comm/onebit_allreduce.h"
#include "comm/resolve/plan_cache.h"
#include "comm/resolve/resolve.h"
#include "comm/shared_regions.h"

namespace qccl::internal {

// Thread-safe. Owned by the user's handles; the destructor waits for this group's operations
// (each has a deadline) and closes the group.
class CommunicatorState {
 public:
  // Collective over the group. `parent` is the group that it is made from, if any: a failure of that ends the wait for
  // the other ranks.
  static Result<std::shared_ptr<CommunicatorState>> open(std::shared_ptr<comm::Context> context, std::uint64_t id,
                                                         std::string name, std::vector<int> ranks,
                                                         std::optional<std::uint64_t> parent = std::nullopt);
  ~CommunicatorState();

  using CollectiveCall = comm::CollectiveCall;
  using MessageCall = comm::MessageCall;

  // Blocking calls throw, others return the Work's state.
  // Between group_start() and group_end() of the calling thread both only record the call.
  void run(const CollectiveCall& call);
  std::shared_ptr<WorkState> post(const CollectiveCall& call);

  // The rank the message came from; -1 for a send, or where the call was only recorded.
  int run(const MessageCall& call);
  std::shared_ptr<WorkState> post(const MessageCall& call);
  // Both at once; the rank the second one's message came from.
  int run(const MessageCall& send, const MessageCall& receive);
  // All as one.
  void run(std::span<const CollectiveCall> calls);
  std::shared_ptr<WorkState> post(std::span<const CollectiveCall> calls);

  void group_start();
  std::shared_ptr<WorkState> group_end();

  // Groups made of this one's ranks: see Communicator. split() gives null for no colour.
  std::shared_ptr<CommunicatorState> subgroup(const std::vector<int>& members, const std::string& name);
  std::shared_ptr<CommunicatorState> split(int colour, int key);
  std::shared_ptr<CommunicatorState> dup();

  void abort(const std::string& reason);
  void close();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  std::uint64_t id() const { return id_; }
  // Throws misuse once closed, and in a forked child.
  std::shared_ptr<comm::Context> context() const;

  SharedRegions& regions() { return regions_; }
  OnebitMemory& onebit_memory() { return onebit_memory_; }
  comm::GroupDefaults defaults() const;
  // What a call would become now, and why it has its algorithm.
  engine::ResolvedCall call_of(Collective collective, std::size_t count, DataType type,
                               const CallOptions& options) const;
  std::string explain(Collective collective, std::size_t count, DataType type, const CallOptions& options) const;
  void set_compression(const Compression& compression);
  void set_timeout(Milliseconds timeout);

  Error wrong_argument(const comm::Context& context, std::string operation, const std::string& what) const;
  // Throws misuse between group_start() and group_end(): `what` exchanges data, which a recorded call would not.
  void refuse_recording(comm::Context& context, const char* what) const;

 private:
  CommunicatorState(std::shared_ptr<comm::Context> context, std::uint64_t id, std::string name, std::vector<int> ranks);
  // With mutex_ held.
  const std::shared_ptr<comm::Context>& usable_context() const;
  engine::CallArguments make_arguments(const CollectiveCall& call, comm::Context& context);
  engine::CallArguments make_arguments(const MessageCall& call, comm::Context& context);
  // Sets `context` too, under the same lock. A wrong call among those recorded ends the recording.
  template <class AnyCall>
  engine::CallArguments prepare(const AnyCall& call, std::shared_ptr<comm::Context>& context) {
    const std::lock_guard lock(mutex_);
    context = usable_context();
    try {
      return make_arguments(call, *context);
    } catch (...) {
      context->recorder().cancel();
      throw;
    }
  }
  // Counts the collectives that are about to be posted, at most engine::max_in_flight(), as in flight. Blocks while too
  // many are, each of which has a deadline.
  void make_room(comm::Context& context, std::span<engine::CallArguments> calls);
  // Posts a list that is longer than may be in flight in windows, and returns the last, for the caller to post. Room is
  // made for each. Messages go first: a peer may need them before it joins the collectives.
  engine::ArgumentsList post_all_but_last(comm::Context& context, engine::ArgumentsList calls);
  // Takes the call over if this thread records.
  static bool record(engine::CallArguments& arguments, comm::Context& context);
  static void make_work(engine::CallArguments& arguments, comm::Context& context);
  static void run(engine::CallArguments&& arguments, comm::Context& context);
  std::shared_ptr<WorkState> begin(engine::CallArguments arguments, const std::shared_ptr<comm::Context>& context);
  template <class AnyCall>
  engine::ArgumentsList prepare_all(std::span<const AnyCall> calls, std::shared_ptr<comm::Context>& context);
  std::optional<SharedRegions::Place> find_region(const CollectiveCall& call);
  bool suits_region(const engine::ResolvedCall& resolved, const engine::MappedRegion& region,
                    const CallOptions& options) const;
  comm::PlanCache::Plan plan_of(const CollectiveCall& call, const std::optional<SharedRegions::Place>& place,
                                const comm::Context& context);
  std::string wrong_buffers(const engine::ExecutablePlan& plan, const CollectiveCall& call) const;
  std::shared_ptr<comm::Context> take_context();
  std::vector<int> world_ranks(const std::vector<int>& members) const;
  std::uint64_t next_child_id();
  void leave(comm::Context& context);

  // A call with automatic compression that is part of a trial: where its time goes.
  struct TimedCall {
    std::shared_ptr<comm::TrialTimes> times;
    std::size_t candidate;
    const Clock* clock;
    TimePoint begin{};
    void end() const;
  };
  bool is_automatic(const CollectiveCall& call) const;
  std::optional<TimedCall> advance_trial(const CollectiveCall& call);
  engine::CallArguments comparison(comm::CompressionTrials::Class& calls, comm::Context& context);
  void run_automatic(const CollectiveCall& call);
  std::shared_ptr<WorkState> post_automatic(const CollectiveCall& call);

  const std::uint64_t id_;
  const std::string name_;
  const std::vector<int> ranks_;  // world ranks
  int rank_ = 0;                  // in the group
  SharedRegions regions_;
  OnebitMemory onebit_memory_;
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_ = std::make_shared<std::atomic<std::size_t>>(0);
  const std::shared_ptr<WorkState> quiet_ = std::make_shared<WorkState>();  // ends when a closing group is quiet

  std::atomic<bool> defaults_to_automatic_{false};  // what defaults_.compression is

  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<comm::Context> context_;
  comm::GroupDefaults defaults_;
  comm::AlgorithmTable table_;
  Nanoseconds timeout_;
  comm::PlanCache plans_;
  comm::CompressionTrials automatic_;
  std::uint64_t children_ = 0;                                  // by split() and dup(), alike on all ranks
  std::unordered_map<std::uint64_t, std::uint64_t> subgroups_;  // how many of a list and name, by digest
};

}  // namespace qccl::internal
