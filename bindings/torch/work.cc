#include "work.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/copy.h>

#include <utility>

#include "errors.h"

namespace qccl::torch_binding {
namespace {

// Counts a Work's operations down and holds the Work until the last has ended.
struct Pending {
  std::atomic<std::size_t> operations;
  c10::intrusive_ptr<CollectiveWork> work;
};

}  // namespace

CollectiveWork::CollectiveWork(int rank, Call call, std::shared_ptr<CompletionOrder> order,
                               std::shared_ptr<CompletionPool> pool)
    : c10d::Work(rank, call.type),
      call_(std::move(call)),
      outputs_(call_.outputs),
      order_(std::move(order)),
      pool_(std::move(pool)) {}

void CollectiveWork::posted(std::vector<qccl::Work> operations, std::uint64_t sequence) {
  operations_ = std::move(operations);
  sequence_ = sequence;
}

void CollectiveWork::complete_from_pool() {
  pool_->expect();
  auto pending = std::make_shared<Pending>();
  pending->operations = operations_.size() + 1;
  pending->work = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
  // Runs on the thread that ends the operation, which must not free tensors: the reference to the
  // Work moves on to the pool.
  const auto ended = [pending] {
    if (pending->operations.fetch_sub(1) != 1) return;
    const auto pool = pending->work->pool_;
    pool->push([work = std::move(pending->work)] { work->settle(); });
  };
  for (const qccl::Work& operation : operations_) operation.notify(ended);
  ended();
}

// ---- The end of the operations

// Returns when every operation has ended, however. Throws only when `timeout` passed first.
void CollectiveWork::wait_for_operations(std::chrono::milliseconds timeout) const {
  for (const qccl::Work& operation : operations_) {
    try {
      if (timeout > kNoTimeout) {
        operation.wait(timeout);
      } else {
        operation.wait();
      }
    } catch (const Error& error) {
      if (!operation.done()) std::rethrow_exception(to_torch(error.info()));
    }
  }
}

void CollectiveWork::wait_for_results() {
  if (!settled_) wait_for_operations(kNoTimeout);
  settle();
}

// The operations have ended: brings results to their places and lets go of what the library used,
// then completes the future, whose callbacks run here. Once; returns when all is done but for
// callbacks that run in another thread.
void CollectiveWork::settle() {
  if (!settled_) {
    const std::lock_guard lock(settling_);
    if (!settled_) {
      failure_ = outcome();
      call_ = Call{call_.type, {}, {}, {}, {}};
      settled_ = true;
      finish(failure_);
    }
  }
  c10::intrusive_ptr<Future> future;
  bool given = false;
  {
    const std::lock_guard lock(future_mutex_);
    future = future_;
    given = std::exchange(value_given_, true);
  }
  if (!future) return;
  if (given) {
    future->wait();
  } else {
    give_value(*future);
  }
}

// The failure of the first operation that failed.
std::exception_ptr CollectiveWork::outcome() {
  for (const auto& work : call_.earlier) work->wait_for_results();
  for (const qccl::Work& operation : operations_) {
    if (const auto error = operation.error()) return to_torch(*error);
  }
  try {
    const at::NoGradGuard no_grad;
    for (const CopyBack& copy : call_.copies) copy.target.copy_(copy.source);
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  if (settled_) {
    value_given_ = true;
    give_value(*future_);
  }
  return future_;
}

void CollectiveWork::give_value(Future& future) const {
  try {
    if (failure_) {
      future.setError(failure_);
    } else {
      future.markCompleted(c10::List<at::Tensor>(outputs_));
    }
  } catch (const std::exception&) {
    // A callback threw. The future has its value, and the callback's own future the error.
  }
}

// ---- What torch asks

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (!settled_) wait_for_operations(timeout);
  settle();
  if (failure_) std::rethrow_exception(failure_);
  synchronize();
  return true;
}

bool CollectiveWork::isCompleted() {
  if (!settled_) return false;
  const std::lock_guard lock(future_mutex_);
  return !future_ || future_->completed();
}

bool CollectiveWork::isSuccess() const { return settled_ && !failure_; }

std::exception_ptr CollectiveWork::exception() const { return settled_ ? failure_ : nullptr; }

std::vector<at::Tensor> CollectiveWork::result() { return outputs_; }

std::uint64_t CollectiveWork::getSequencenumber() const { return sequence_; }

}  // namespace qccl::torch_binding
