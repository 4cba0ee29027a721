// A collective in flight as torch sees it. It owns the tensors until the operation has ended,
// whoever drops it.
//
// wait() drives the library's progress in the calling thread. The future is completed by the first
// to notice the end, a waiting thread or the completion pool, and before wait() returns or
// isCompleted() says true.
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
  CollectiveWork(int rank, Call call, std::shared_ptr<CompletionOrder> order, std::shared_ptr<CompletionPool> pool);

  // Once, before anything else: the library's operations behind this Work.
  void posted(std::vector<qccl::Work> operations, std::uint64_t sequence);
  // Once, of an asynchronous call: keeps the Work alive until its operations have ended, and
  // completes it from the pool then.
  void complete_from_pool();

  // Until outputs are final, whatever became of the operations; not for callbacks.
  void wait_for_results();
  bool has_results() const { return settled_; }
  const std::shared_ptr<CompletionOrder>& order() const { return order_; }
  const std::shared_ptr<CompletionPool>& pool() const { return pool_; }

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
  void give_value(Future& future) const;

  Call call_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<CompletionOrder> order_;
  const std::shared_ptr<CompletionPool> pool_;
  std::vector<qccl::Work> operations_;
  std::uint64_t sequence_ = 0;

  std::mutex settling_;                // held while results are copied; never by a thread with the interpreter's lock
  std::atomic<bool> settled_ = false;  // set under settling_: failure_ and the outputs are final
  std::exception_ptr failure_;

  std::mutex future_mutex_;  // of what follows; held for moments only
  c10::intrusive_ptr<Future> future_;
  bool value_given_ = false;  // or being given, by the thread that set this
};

}  // namespace qccl::torch_binding
