// The c10d backend named "qccl": translates torch's calls into the library's.
//
// Tensors that are not contiguous, and lists whose tensors do not lie one after the other in
// memory, travel through a contiguous copy. Calls with asyncOp=false run in the calling thread.
// Threads: as in torch's other backends; ranks must agree on the order of a group's calls.
//
// backend.cc has the code that all calls share; reductions, data movement and messages have a file each.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/callback_groups.h"
#include "gradients.h"
#include "shared_job.h"
#include "tensors.h"
#include "torch_release.h"
#include "work/work.h"

namespace qccl::torch_binding {

c10::intrusive_ptr<GroupOptions> options_of(const GroupSpec& spec, std::chrono::milliseconds timeout);

// One of the tensors that a call sums over the ranks, or the tensor of a message.
struct CompressedPart {
  at::Tensor tensor;
  std::optional<Compression> compression{};  // unset: the group's compression
  ErrorFeedback feedback{};
  bool keep_input = false;  // CallOptions::keep_input
};

// Error feedback keyed by a tensor's address, for groups that use feedback in all their reductions. A tensor that keeps
// its address, as DDP's gradient buckets do, finds its own feedback again. Keeps the kKept most recently used. One
// thread at a time.
class FeedbackByAddress {
 public:
  static constexpr std::size_t kKept = 256;

  // Made on first use.
  ErrorFeedback of(const void* data, std::size_t count);

 private:
  struct Item {
    const void* data;
    ErrorFeedback feedback;
  };
  std::list<Item> items_;  // most recently used first
};

// Of Works that end in `order` and are traced as the group's, with its time limit as it is now. Streams do not wait for
// them.
std::shared_ptr<WorkShare> make_share(const std::shared_ptr<SharedJob>& job, const Communicator& group,
                                      std::shared_ptr<CallbackOrder> order, std::size_t trace_group);

// A group with the calls that this rank has made in it.
struct GroupState {
  using WorkList = std::vector<c10::intrusive_ptr<CollectiveWork>>;

  struct Survivors {
    Communicator group;
    std::vector<int> members;  // ranks of the group that was shrunk
  };

  // Calls of one thread between startCoalescing() and endCoalescing().
  struct Coalescing {
    std::thread::id thread;
    std::vector<TorchCall> calls;
    std::vector<c10::intrusive_ptr<CoalescedPart>> parts;
  };

  // The predicted time of a thread's calls.
  struct Estimate {
    std::thread::id thread;
    double seconds = 0;
  };

  GroupState(std::shared_ptr<SharedJob> owner, Communicator communicator, const GroupSpec& spec,
             std::shared_ptr<GroupHooks> hooks);

  // The current stream of its tensors' device, and whether such streams wait for the group's calls.
  void set_stream(TorchCall& call) const;
  void apply_timeout();
  WorkList unfinished_works();
  bool finish_operations(std::chrono::milliseconds limit);

  const std::shared_ptr<SharedJob> job;
  Communicator group;
  CallbackGroups groups;
  EnvironmentSums environment_sums;
  const std::shared_ptr<WorkShare> share;
  std::atomic<std::uint64_t> sequence = 0;  // of collectives
  std::atomic<int> monitored_barriers = 0;
  std::optional<Survivors> survivors;  // of shrink_to_living(); one thread at a time

  // Held while a collective is numbered and posted, so that numbers follow the order of posting. It stays held while
  // posting waits for room among the calls in flight.
  std::mutex collectives;
  std::mutex posting;  // guards the members below; never held while waiting for anything
  std::uint64_t messages = 0;
  std::vector<c10::weak_intrusive_ptr<CollectiveWork>> in_flight;
  std::optional<Coalescing> coalescing;
  std::optional<Estimate> estimate;
  std::map<std::string, int> sparse_reductions;  // count so far, by CallbackOrder's sequence
  FeedbackByAddress feedback_by_address;
};

class Backend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  // Tags from here on are reserved for the backend.
  static constexpr int kReservedTags = 1 << 30;

  // `root`: this group made the job, so the job accepts no further groups after it.
  Backend(std::shared_ptr<SharedJob> job, const Communicator& group, const GroupSpec& spec, bool root);
  // A group of a new job of the ranks that meet in the store; collective over them. Throws qccl::Error.
  static c10::intrusive_ptr<Backend> make_job(const GroupSpec& spec);
  // Of a group that has grown, which becomes the default group.
  static c10::intrusive_ptr<Backend> make_grown(const Communicator& grown, const GroupSpec& spec);
  // A group in a job that this process has joined; collective over its ranks. Throws qccl::Error.
  static c10::intrusive_ptr<Backend> make_group(const std::shared_ptr<SharedJob>& job, const GroupSpec& spec);
  ~Backend() override;

#if QCCL_TORCH_HAS_RECONFIGURE
  // In c10d's reconfigure regime: without ranks, as calls say with DistBackendError, until reconfigure(). `handle` must
  // be no other group's, in no process. The spec's store is where ranks meet.
  Backend(GroupSpec spec, std::string handle);
  bool supportsReconfigure() const override { return regime_.has_value(); }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  // Closes the group that there is, which gives its operations in flight a few seconds, and makes one of the listed
  // ranks, newcomers among them, in the list's order; of a set in the order that they had when the process groups
  // began. Collective over the new ranks, which have met when it returns: the Work has ended. After an error the group
  // has no ranks. Hooks stay; groups made of the old one go on. ValueError for a uuid that this group has used, and
  // handles that repeat or leave out its own. No call but abort() may run beside it.
  WorkPointer reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  Communicator communicator() const { return state()->group; }
  std::shared_ptr<const SharedJob> job() const { return state()->job; }
  void set_compression(const Compression& compression);

  const std::string getBackendName() const override { return "qccl"; }
  // A copy: before torch 2.15 c10d changes it to make a part of the group.
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_->clone(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // More time for the calls to come, until the first of them has ended. Those of them that set a timeout have it too.
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) QCCL_OVERRIDE_2_14 {
    state()->share->timeout.extend(timeout);
  }
  void setSequenceNumberForGroup() override {}  // every rank starts at 0
  std::uint64_t getSequenceNumberForGroup() override { return state()->sequence; }
  void enableCollectivesTiming() override {}  // a Work always knows its duration

  // Between these two the calling thread's calls end at once and do nothing. Returns the microseconds that they would
  // take one after the other (Communicator::group_estimate()). Local.
  bool supportsTimeEstimation() const override { return true; }
  void startTimeEstimate() QCCL_OVERRIDE_2_15;
  float endTimeEstimate() QCCL_OVERRIDE_2_15;

  // An abort hook runs when this rank sees the group's first failure, before wait() throws it in that thread. A
  // completion hook runs for every Work that succeeds.
#if QCCL_TORCH_HAS_HOOKS
  bool supportsAbortHooks() const QCCL_OVERRIDE_2_15 { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override { hooks_->failure.remove(id); }
#endif
#if QCCL_TORCH_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override { hooks_->completion.remove(id); }
#endif

  // Opens the device, which the first call with its tensors would do; ranks are connected already. Local.
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override { return state()->share->first_error; }
  void abort() override;
  // Gives this rank's operations a few seconds to end, then aborts the rest.
  void shutdown() override;

#if QCCL_TORCH_HAS_WINDOWS
  bool supportsWindow() const override { return true; }
  // Collective, with or without a tensor: see window.h.
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

  bool supportsSplitting() const override { return true; }
  // Null on a rank of the group that is not in the list.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  // Makes a new job of the ranks that meet in the store.
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<Options>& options, const int& rank,
                                          const int& size) override;

  bool supportsShrinking() const override { return true; }
  // The group of the ranks that are not listed. If others are lost as well, DistBackendError names them; a second call
  // that lists all returns the group.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& without, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;
  // The members of the group that goes on, as ranks of this one: all that live, without those that the options leave
  // out. Collective over them.
  std::vector<int> shrink_to_living(const ShrinkOptions& options);
  // The group that shrink_to_living() has made; once.
  c10::intrusive_ptr<Backend> successor(const c10::intrusive_ptr<Options>& options);

  bool supportsCoalescing() const override { return true; }
  // The calling thread's calls between these two are posted together, as one Work.
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  // Takes several tensors of one shape: each becomes the reduction of all tensors of all ranks.
  // Takes one sparse tensor (COO) per rank: it becomes the sum, or average, of all ranks' tensors, coalesced.
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  // The tensors of a list may have different sizes.
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions&) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions&) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions&) override;

  // Sums each of the parts of `whole` over the ranks, as one operation.
  WorkPointer all_reduce_parts(const std::vector<CompressedPart>& parts, const at::Tensor& whole,
                               const c10d::ReduceOp& op, bool asynchronous);
  WorkPointer reduce_scatter_part(const CompressedPart& input, const at::Tensor& output, const c10d::ReduceOp& op,
                                  bool asynchronous);

  // Takes several tensors of one shape: each becomes the root's tensor number options.rootTensor.
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  // Takes several inputs of one shape and a list of outputs for each. All lists become the same: every rank's inputs.
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions&) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions&) override;
  // Ignores the output on ranks other than the root.
  WorkPointer gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions&) QCCL_OVERRIDE_2_14;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions&) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions&) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  // `from` may be kAnySource.
  WorkPointer send_part(const CompressedPart& part, int to, int tag);
  WorkPointer recv_part(const CompressedPart& part, int from, int tag);
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  // Throws DistBackendError before the first reconfigure().
  std::shared_ptr<GroupState> state() const;
  // Null instead.
  std::shared_ptr<GroupState> state_if_any() const;

  // A call with torch's timeout and asyncOp.
  template <class TorchOptions>
  TorchCall make_call(c10d::OpType type, const char* title, Tensors inputs, TensorLists outputs,
                      const TorchOptions& torch_options) const {
    TorchCall call{type, title, std::move(inputs), std::move(outputs)};
    call.options.log_name = log_caller();
    call.is_asynchronous = torch_options.asyncOp;
    const auto own = state();
    if (torch_options.timeout != c10d::kUnsetTimeout) {
      call.options.timeout = torch_options.timeout + own->share->timeout.extension();
    }
    own->set_stream(call);
    call.options.awaited = !call.is_asynchronous && !call.is_gated;
    return call;
  }

  WorkPointer estimate(const TorchCall& call, GroupState& own);
  std::string wait_for_turn(const TorchCall& call, const GroupState& own) const;
  WorkPointer start(TorchCall call);
  WorkPointer coalesce(TorchCall& call, GroupState& own);
  void add_sum(CollectiveCall sum, TorchCall& call, bool keeps_feedback = false);
  void keep_feedback(CollectiveCall& sum);
  void add_all_reduce(const CompressedPart& part, const c10d::ReduceOp& op, TorchCall& call);
  void add_reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op, TorchCall& call);
  WorkPointer message(c10d::OpType type, const char* title, const CompressedPart& part, int peer, int tag);

  const bool root_;
  const c10::intrusive_ptr<GroupOptions> options_;
  const std::shared_ptr<GroupHooks> hooks_ = std::make_shared<GroupHooks>();  // of every group
  mutable std::mutex replacing_;                                              // guards state_
  std::shared_ptr<GroupState> state_;                                         // null: no ranks
#if QCCL_TORCH_HAS_RECONFIGURE
  struct Regime {
    GroupSpec spec;  // of every group, but for store, ranks and timeout
    std::string handle;
    std::set<std::int64_t> used{};  // uuids
  };
  std::optional<Regime> regime_;
#endif
};

// A Work that has ended, with the call's outputs as they are.
c10::intrusive_ptr<c10d::Work> ended_work(const TorchCall& call);

// ValueError if the process group has another backend.
Backend& own(const c10::intrusive_ptr<c10d::Backend>& backend);

// ---- Sums of sparse tensors (backend_messages.cc)

struct SparseReduction {
  at::Tensor tensor;  // COO; becomes the result, coalesced. Only the CPU's memory is sent
  c10d::ReduceOp op;
  int rank = 0;
  int world = 1;
  int tag = 0;  // the same on all ranks; no other message may use it
};

// Adds an all_reduce of a sparse tensor to the call. It uses qccl::SparseSum, but sends it differently from
// qccl::sparse_all_reduce(): an all_gather of headers tells every rank how many elements each peer has; messages then
// carry the elements. Supports SUM, AVG and PREMUL_SUM, added in rank order, 16-bit floats in float32. ValueError for
// tensors that have no such sum. If shapes differ between ranks, the Work fails on all of them with ValueError.
void add_sparse_all_reduce(SparseReduction reduction, TorchCall& call);

}  // namespace qccl::torch_binding
