// A collective in flight as torch sees it. It owns the tensors until the operation has ended,
// whoever drops it.
//
// wait() drives the library's progress in the calling thread. A future exists only where one was
// asked for; it is completed, and its callbacks run, on the completion pool in the group's
// completion order, and before wait() returns or isCompleted() says true. Asked for after that, it
// is born completed.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completion_order.h"
#include "completion_pool.h"
#include "qccl/communicator.h"
#include "tensors.h"

namespace qccl::torch_binding {

class CollectiveWork;

// What a call needs until its end, and what its future holds then.
struct Call {
  c10d::OpType type;
  std::vector<at::Tensor> memory;                           // what the library reads and writes
  std::vector<CopyBack> copies;                             // done once the operation has succeeded
  std::vector<at::Tensor> outputs;                          // the future's value
  std::vector<c10::intrusive_ptr<CollectiveWork>> earlier;  // a barrier also waits for these
};

class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, Call call);

  // Once, before anything else: the library's operations behind this Work.
  void posted(std::vector<qccl::Work> operations, std::uint64_t sequence);
  // Once, of an asynchronous call: keeps the Work alive until its operations have ended, and
  // completes it from the pool then.
  void complete_from(std::shared_ptr<CompletionPool> pool, std::shared_ptr<CompletionOrder> order);

  // Until outputs are final, whatever became of the operations; not for callbacks.
  void wait_for_results();
  bool has_results() const { return settled_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  using Future = c10::ivalue::Future;

  void wait_for_operations(std::chrono::milliseconds timeout) const;
  void settle();
  std::exception_ptr outcome();
  void operations_ended();
  void give_value(Future& future);
  void complete_future(bool asked_from_python);
  c10::intrusive_ptr<Future> observe();

  Call call_;
  const std::vector<at::Tensor> outputs_;
  std::vector<qccl::Work> operations_;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<CompletionPool> pool_;  // null in a synchronous call
  std::shared_ptr<CompletionOrder> order_;

  std::mutex settling_;                // held while results are copied; never with the interpreter's lock
  std::atomic<bool> settled_ = false;  // set under settling_: failure_ and the outputs are final
  std::exception_ptr failure_;

  std::mutex future_mutex_;  // held for moments only, of what follows
  c10::intrusive_ptr<Future> future_;
  CompletionOrder::PlacePointer place_;  // of the future
  bool in_turn_ = false;                 // the pool has taken notice that the operations have ended
  bool observed_ = false;                // wait() returned or isCompleted() said true before a future was asked for
};

}  // namespace qccl::torch_binding
