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
  std::shared_ptr<CompletionPool> pool;
};

}  // namespace

CollectiveWork::CollectiveWork(int rank, Call call)
    : c10d::Work(rank, call.type),
      call_(std::move(call)),
      outputs_(call_.outputs),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void CollectiveWork::posted(std::vector<qccl::Work> operations, std::uint64_t sequence) {
  operations_ = std::move(operations);
  sequence_ = sequence;
}

void CollectiveWork::complete_from(const std::shared_ptr<CompletionPool>& pool) {
  pool->expect();
  auto pending = std::make_shared<Pending>();
  pending->operations = operations_.size() + 1;
  pending->work = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
  pending->pool = pool;
  // Runs on the thread that ends the operation, which must not free tensors: the reference to the
  // Work moves on to the pool.
  const auto ended = [pending] {
    if (pending->operations.fetch_sub(1) != 1) return;
    pending->pool->push([work = std::move(pending->work)]() mutable {
      work->settle();
      work.reset();
    });
  };
  for (const qccl::Work& operation : operations_) operation.notify(ended);
  ended();
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (!future_->completed()) wait_for_operations(timeout);
  settle();
  if (future_->hasError()) std::rethrow_exception(future_->exception_ptr());
  synchronize();
  return true;
}

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

void CollectiveWork::settle() {
  if (settled_.exchange(true)) {
    future_->wait();
    return;
  }
  const std::exception_ptr failure = outcome();
  call_ = Call{call_.type, {}, {}, {}, {}};
  try {
    if (failure) {
      future_->setError(failure);
    } else {
      future_->markCompleted(c10::List<at::Tensor>(outputs_));
    }
  } catch (const std::exception&) {
    // A callback threw. The future has its value, and the callback's own future has the error.
  }
  finish(failure);
}

// The failure of the first operation that failed. Where all succeeded, brings results to their
// places.
std::exception_ptr CollectiveWork::outcome() {
  for (const auto& work : call_.earlier) work->getFuture()->wait();
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

bool CollectiveWork::isCompleted() { return future_->completed(); }

bool CollectiveWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::exception_ptr CollectiveWork::exception() const {
  return future_->completed() && future_->hasError() ? future_->exception_ptr() : nullptr;
}

std::vector<at::Tensor> CollectiveWork::result() { return outputs_; }

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() { return future_; }

std::uint64_t CollectiveWork::getSequencenumber() const { return sequence_; }

}  // namespace qccl::torch_binding
