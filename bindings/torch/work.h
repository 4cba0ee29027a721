// A collective in flight as torch sees it. It owns the tensors until the operation has ended,
// whoever drops it. What waits drives the library's progress itself; futures are completed by
// whichever comes first, a waiting thread or the completion pool, always before wait() returns.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completion_pool.h"
#include "qccl/communicator.h"
#include "tensors.h"

namespace qccl::torch_binding {

// What a call needs until its end, and what its future holds then.
struct Call {
  c10d::OpType type;
  std::vector<at::Tensor> memory;                       // what the library reads and writes
  std::vector<CopyBack> copies;                         // done once the operation has succeeded
  std::vector<at::Tensor> outputs;                      // the future's value
  std::vector<c10::intrusive_ptr<c10d::Work>> earlier;  // a barrier also waits for these
};

class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, Call call);

  // Once, before anything else: the library's operations behind this Work.
  void posted(std::vector<qccl::Work> operations, std::uint64_t sequence);
  // Keeps the Work alive until its operations have ended, and completes it from the pool then.
  void complete_from(const std::shared_ptr<CompletionPool>& pool);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  // The operations have ended: copies results to their places and completes the future, whose
  // callbacks run here. Returns when the future holds its value, in every thread.
  void settle();
  std::exception_ptr outcome();
  void wait_for_operations(std::chrono::milliseconds timeout) const;

  Call call_;
  std::vector<at::Tensor> outputs_;
  std::vector<qccl::Work> operations_;
  std::uint64_t sequence_ = 0;
  std::atomic<bool> settled_ = false;  // claims settle(); the future's own lock publishes the result
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace qccl::torch_binding
