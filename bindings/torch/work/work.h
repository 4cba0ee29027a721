// An operation in flight as torch sees it. The tensors stay alive until the operation has ended, even if the program
// drops the Work.
//
// wait() drives the library's progress in the calling thread. The first thread that notices the end, a waiting thread
// or one of the completion pool, completes the future. It does so before wait() returns or isCompleted() returns true.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/call_memory.h"
#include "qccl/communicator.h"
#include "work/completion_order.h"
#include "work/completion_pool.h"
#include "work/operation_trace.h"

namespace qccl::torch_binding {

class CollectiveWork;

// The data that a call needs until its end, and the value of its future.
struct Call {
  // Posts one operation of the library.
  using Post = std::function<qccl::Work(Communicator&)>;

  c10d::OpType type;
  const char* title;                                             // of its profiler event; not copied
  std::vector<at::Tensor> inputs = {};                           // the event and the trace show their shapes
  std::vector<std::vector<at::Tensor>> outputs = {};             // the future's value: a list, or a list of lists
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;       // for the trace
  int peer = -1;                                                 // of a message
  std::vector<Post> posts = {};                                  // called in this order, before any data moves
  Post later_post = nullptr;                                     // called once those succeeded; not in coalesced calls
  CallMemory memory = {};                                        // of the posts; finished once all have succeeded
  std::vector<std::function<void()>> endings = {};               // called after memory.finish()
  std::vector<c10::intrusive_ptr<CollectiveWork>> earlier = {};  // a barrier also waits for these

  bool is_message() const { return c10d::isP2POp(type); }
};

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
  CollectiveWork(int rank, Call call, std::shared_ptr<WorkShare> share);

  // Posts the call's operations. Call it once, before anything else. Throws torch's exceptions.
  void post(const Communicator& group, std::uint64_t sequence);
  // For an asynchronous call, once: keeps the Work alive until its operations have ended, then
  // completes it from the pool.
  void complete_from_pool();

  // Waits until outputs are final, whether or not the operations succeeded; does not wait for callbacks.
  void wait_for_results();
  // The same, but not beyond the deadline; returns whether outputs are final.
  bool wait_for_results_until(std::chrono::steady_clock::time_point deadline);
  bool has_results() const { return settled_; }
  bool is_message() const { return is_message_; }
  const std::shared_ptr<WorkShare>& share() const { return share_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Holds a c10d::WorkResult, and never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;  // milliseconds; throws before the operation has ended
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  using Future = c10::ivalue::Future;
  using Operations = std::vector<qccl::Work>;

  // A future that is made on request and given its value once.
  struct LazyFuture {
    c10::intrusive_ptr<Future> future;
    bool given = false;  // or being given, by the thread that set this
  };

  OperationTrace::Operation traced() const;
  void wait_for_operations(std::chrono::milliseconds timeout);
  Operations follow_up();
  void complete_from_pool_after(const Operations& operations);
  void settle();
  std::exception_ptr outcome();
  void note_failure(const ErrorInfo& error);
  void complete(LazyFuture& lazy, void (CollectiveWork::*give)(Future&) const);
  c10::intrusive_ptr<Future> future_of(LazyFuture& lazy, const c10::TypePtr& type,
                                       void (CollectiveWork::*give)(Future&) const);
  std::vector<at::Tensor> result_list() const;
  void give_value(Future& future) const;
  void give_result(Future& future) const;

  Call call_;
  const std::vector<std::vector<at::Tensor>> outputs_;
  const bool is_message_;
  const std::shared_ptr<WorkShare> share_;
  Operations operations_;
  std::uint64_t sequence_ = 0;
  OperationTrace::Place trace_place_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();

  std::mutex settling_;                // held while results are copied; never by a thread with the interpreter's lock
  std::optional<Communicator> group_;  // for the later operations; unset once they are posted
  Operations followers_;               // the later operations
  std::exception_ptr follow_up_failure_;
  std::atomic<bool> settled_ = false;  // set under settling_: the members below and the outputs are final
  std::exception_ptr failure_;
  c10d::WorkResult result_ = c10d::WorkResult::SUCCESS;
  std::chrono::steady_clock::time_point ended_;

  std::mutex future_mutex_;  // guards the members below; held only briefly
  LazyFuture value_;
  LazyFuture result_value_;
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
