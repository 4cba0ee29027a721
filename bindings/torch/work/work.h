// An operation in flight as torch sees it. The tensors stay alive until the operation has ended, even if the program
// drops the Work.
//
// wait() drives the library's progress in the calling thread. The first thread that notices the end, a waiting thread
// or one of the completion pool, completes the future. It does so before wait() returns or isCompleted() returns true.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "work/completion_order.h"
#include "work/completion_pool.h"
#include "work/lazy_future.h"
#include "work/operation_trace.h"
#include "work/posted_operations.h"
#include "work/torch_call.h"

namespace qccl::torch_binding {

// The state that the works of one process group share.
struct WorkShare {
  std::shared_ptr<CompletionOrder> order;
  std::shared_ptr<CompletionPool> pool;
  std::shared_ptr<OperationTrace> trace;
  std::size_t trace_group = 0;
  std::function<void(const std::string& reason)> abort_group;
  std::atomic<c10d::ErrorType> first_error = c10d::ErrorType::SUCCESS;
};

class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, TorchCall call, std::shared_ptr<WorkShare> share);

  // Posts the call's operations. Call it once, before anything else. Throws torch's exceptions.
  void post(const Communicator& group, std::uint64_t sequence);
  // For an asynchronous call, once: keeps the Work alive until its operations have ended, then
  // completes it from the pool.
  void complete_from_pool(bool may_post_later = true);
  // Waits until outputs are final, whether or not the operations succeeded; does not wait for callbacks. Returns false
  // if the deadline came first.
  bool wait_for_results(std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());
  const std::shared_ptr<WorkShare>& share() const { return share_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override { return has_results_ && !end_.failure; }
  std::exception_ptr exception() const override { return has_results_ ? end_.failure : nullptr; }
  int sourceRank() const override { return operations_.source(); }
  std::vector<at::Tensor> result() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Holds a c10d::WorkResult, and never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;  // milliseconds; throws before the operation has ended
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void complete();
  void complete_value(c10::ivalue::Future& future) const;
  void complete_result(c10::ivalue::Future& future) const;

  TorchCall call_;
  const std::shared_ptr<WorkShare> share_;
  PostedOperations operations_;
  std::uint64_t sequence_ = 0;
  OperationTrace::Handle trace_handle_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();

  std::mutex completing_;  // held while results are copied; never by a thread with the interpreter's lock
  std::atomic<bool> has_results_ = false;  // set under completing_: end_ and the outputs are final
  CallEnd end_;
  LazyFuture value_;
  LazyFuture result_;
};

// The Work of a call between startCoalescing() and endCoalescing(): it ends with the whole. Waiting for it before
// endCoalescing() returns at once, because programs written for streams wait inside the coalesced block.
class CoalescedPart final : public c10d::Work {
 public:
  using c10d::Work::Work;
  void set_whole(c10::intrusive_ptr<CollectiveWork> whole);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  c10::intrusive_ptr<CollectiveWork> whole() const;

  mutable std::mutex whole_mutex_;
  c10::intrusive_ptr<CollectiveWork> whole_;
};

}  // namespace qccl::torch_binding
