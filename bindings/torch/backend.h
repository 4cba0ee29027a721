// The c10d backend named "qccl": translates torch's calls into the library's.
//
// Tensors that are not contiguous, and lists whose tensors do not lie one after the other in
// memory, travel through a contiguous copy. Calls with asyncOp=false run in the calling thread.
// Threads: as torch's other backends; ranks must agree on the order of a group's calls.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "work.h"
#include "world.h"

namespace qccl::torch_binding {

class Backend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  // `root` says that this group made the world, so that the world retires with it.
  Backend(std::shared_ptr<World> world, Communicator group, const GroupRequest& request, bool root);
  ~Backend() override;

  Communicator& communicator() { return group_; }
  void set_compression(const Compression& compression);

  const std::string getBackendName() const override { return "qccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // every rank starts at 0
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void enableCollectivesTiming() override {}
  void abort() override;
  void shutdown() override;

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions&) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions&) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions&) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions&) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  // NotImplementedError.
  WorkPointer allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPointer reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPointer gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override;
  WorkPointer scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override;
  WorkPointer alltoall_base(at::Tensor&, at::Tensor&, std::vector<std::int64_t>&, std::vector<std::int64_t>&,
                            const c10d::AllToAllOptions&) override;
  WorkPointer alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPointer send(Tensors&, int, int) override;
  WorkPointer recv(Tensors&, int, int) override;
  WorkPointer recvAnysource(Tensors&, int) override;

 private:
  // Posts one operation of the library; run in order under the posting lock.
  using Post = std::function<qccl::Work(Communicator&)>;

  Communicator group_for_this_thread();
  void for_each_group(const std::function<void(const Communicator&)>& action);
  WorkPointer start(Call call, const std::vector<Post>& posts, bool asynchronous);
  CallOptions call_options(std::chrono::milliseconds timeout) const;
  WorkPointer all_reduce_each(c10d::OpType type, const Tensors& tensors, const c10d::AllreduceOptions& options);
  Post gather_post(const at::Tensor& output, const at::Tensor& input, const CallOptions& options, Call& call) const;
  Post scatter_post(const at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                    const c10d::ReduceOp& op, Call& call) const;
  void check_parts(const at::Tensor& whole, const at::Tensor& part, const char* operation) const;
  void check_list(const Tensors& list, const at::Tensor& part, const char* operation) const;

  const std::shared_ptr<World> world_;
  const bool root_;
  const c10::intrusive_ptr<Options> options_;
  Communicator group_;
  std::atomic<std::uint64_t> sequence_ = 0;

  std::mutex posting_;  // never held while waiting for anything
  std::vector<c10::weak_intrusive_ptr<CollectiveWork>> in_flight_;

  // Collectives that callbacks start, by CompletionOrder::current_sequence().
  const std::shared_ptr<CompletionOrder> order_;
  std::mutex callback_groups_mutex_;  // of what follows; held while a group is made
  std::map<std::string, Communicator> callback_groups_;
  std::optional<Compression> compression_;
  std::optional<std::chrono::milliseconds> timeout_;
};

}  // namespace qccl::torch_binding
