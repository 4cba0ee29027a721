// A process group in c10d's reconfigure regime, where c10d has one: it has no ranks until reconfigure(), which gives it
// new ones as often as the program likes, newcomers among them.
#pragma once

#include "torch_release.h"

#if QCCL_TORCH_HAS_RECONFIGURE

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "work/hooks.h"

namespace qccl::torch_binding {

using GroupPointer = c10::intrusive_ptr<Backend>;  // a class derived from c10d::Backend has that under this name

// Its calls are those of the group that the last reconfigure() made; before that DistBackendError says so.
// Threads: as Backend; no call may run beside reconfigure().
class Reconfigurable final : public c10d::Backend {
 public:
  using Tensors = GroupPointer::element_type::Tensors;
  using TensorLists = GroupPointer::element_type::TensorLists;
  using WorkPointer = GroupPointer::element_type::WorkPointer;

  // `handle` must be no other group's, in no process. The spec's store is where ranks meet.
  Reconfigurable(GroupSpec spec, std::string handle);
  ~Reconfigurable() override = default;

  // The group of the last reconfigure().
  GroupPointer current() const;

  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  // Closes the group that there is, which gives its operations in flight a few seconds, and makes one of the listed
  // ranks, in the list's order; of a set in the order that they had when the process groups began. Collective over the
  // new ranks, which have met when it returns: the Work has ended. After an error the group has no ranks. ValueError
  // for a uuid that this group has used, and handles that repeat or leave out its own.
  WorkPointer reconfigure(const c10d::ReconfigureOptions& options) override;

  const std::string getBackendName() const override { return "qccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void addEphemeralTimeout(const std::chrono::milliseconds& t) override { current()->addEphemeralTimeout(t); }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return current()->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override {}
  c10d::ErrorType getError() override { return current()->getError(); }
  void abort() override;
  void shutdown() override;

  bool supportsTimeEstimation() const override { return true; }
  void startTimeEstimate() QCCL_OVERRIDE_2_15 { current()->startTimeEstimate(); }
  float endTimeEstimate() QCCL_OVERRIDE_2_15 { return current()->endTimeEstimate(); }

  // Hooks are those of every group, also of groups to come.
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

  bool supportsShrinking() const override { return true; }
  // Returns a group of its own, which reconfigure() leaves as it is.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& without, int flags,
                                           const c10::intrusive_ptr<Options>& options) override {
    return current()->shrink(without, flags, options);
  }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override {
    return current()->split(store, ranks, options);
  }
#if QCCL_TORCH_HAS_WINDOWS
  bool supportsWindow() const override { return true; }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override {
    return current()->new_window(tensor);
  }
#endif
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { current()->startCoalescing(); }
  WorkPointer endCoalescing() override { return current()->endCoalescing(); }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) override {
    return current()->allreduce(tensors, o);
  }
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& o) override {
    return current()->allreduce_sparse(tensors, o);
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) override {
    return current()->allreduce_coalesced(tensors, o);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& o) override { return current()->reduce(tensors, o); }
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& o) override {
    return current()->reduce_scatter(outputs, inputs, o);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& o) override {
    return current()->_reduce_scatter_base(output, input, o);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& o) override {
    return current()->reduce_scatter_tensor_coalesced(outputs, inputs, o);
  }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) override {
    return current()->broadcast(tensors, o);
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) override {
    return current()->allgather(outputs, inputs, o);
  }
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) override {
    return current()->allgather_coalesced(outputs, inputs, o);
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& o) override {
    return current()->_allgather_base(output, input, o);
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& o) override {
    return current()->allgather_into_tensor_coalesced(outputs, inputs, o);
  }
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& o) override {
    return current()->gather(outputs, inputs, o);
  }
  WorkPointer gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& o) override {
    return current()->gather_into_tensor(output, input, o);
  }
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& o) override {
    return current()->scatter(outputs, inputs, o);
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& o) override {
    return current()->alltoall_base(output, input, output_splits, input_splits, o);
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& o) override {
    return current()->alltoall(outputs, inputs, o);
  }
  WorkPointer barrier(const c10d::BarrierOptions& o) override { return current()->barrier(o); }
  WorkPointer send(Tensors& tensors, int to, int tag) override { return current()->send(tensors, to, tag); }
  WorkPointer recv(Tensors& tensors, int from, int tag) override { return current()->recv(tensors, from, tag); }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override { return current()->recvAnysource(tensors, tag); }
  void monitoredBarrier(const c10d::BarrierOptions& o, bool wait_all_ranks) override {
    current()->monitoredBarrier(o, wait_all_ranks);
  }

 private:
  struct GroupHooks {
    Hooks<> failure;
    Hooks<std::uint64_t, float> completion;
  };

  std::vector<std::string> ranks_of(const c10d::ReconfigureOptions& options) const;

  const GroupSpec spec_;  // of every group, but for store, ranks and timeout
  const std::string handle_;
  const c10::intrusive_ptr<GroupOptions> options_;
  const std::shared_ptr<GroupHooks> hooks_ = std::make_shared<GroupHooks>();
  std::set<std::int64_t> used_;  // uuids
  mutable std::mutex mutex_;     // guards the member below
  GroupPointer current_;
};

}  // namespace qccl::torch_binding

#endif
