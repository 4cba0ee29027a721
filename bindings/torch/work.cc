#include "work.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/copy.h>
#include <torch/csrc/utils/pybind.h>

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

CollectiveWork::CollectiveWork(int rank, Call call)
    : c10d::Work(rank, call.type), call_(std::move(call)), outputs_(call_.outputs) {}

void CollectiveWork::posted(std::vector<qccl::Work> operations, std::uint64_t sequence) {
  operations_ = std::move(operations);
  sequence_ = sequence;
}

void CollectiveWork::complete_from(std::shared_ptr<CompletionPool> pool, std::shared_ptr<CompletionOrder> order) {
  pool->expect();
  pool_ = std::move(pool);
  order_ = std::move(order);
  auto pending = std::make_shared<Pending>();
  pending->operations = operations_.size() + 1;
  pending->work = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
  // Runs on the thread that ends the operation, which must not free tensors: the reference to the
  // Work moves on to the pool.
  const auto ended = [pending] {
    if (pending->operations.fetch_sub(1) != 1) return;
    const auto pool_of_work = pending->work->pool_;
    pool_of_work->push([work = std::move(pending->work)] { work->operations_ended(); });
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

// The operations have ended: brings results to their places, once, and lets go of what the
// library used.
void CollectiveWork::settle() {
  if (settled_) return;
  const std::lock_guard lock(settling_);
  if (settled_) return;
  failure_ = outcome();
  call_ = Call{call_.type, {}, {}, {}, {}};
  settled_ = true;
  finish(failure_);
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

// ---- Futures

// On the pool.
void CollectiveWork::operations_ended() {
  settle();
  CompletionOrder::PlacePointer place;
  {
    const std::lock_guard lock(future_mutex_);
    in_turn_ = true;
    place = place_;
  }
  if (place) CompletionOrder::ended(place);
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  if (observed_) {
    give_value(*future_);
    return future_;
  }
  const bool from_python = PyGILState_Check() != 0;
  place_ = order_->take_place([work = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this), from_python] {
    work->complete_future(from_python);
  });
  if (in_turn_) {
    pool_->expect();
    pool_->push([place = place_] { CompletionOrder::ended(place); });
  }
  return future_;
}

void CollectiveWork::complete_future(bool asked_from_python) {
  // A callback that is added to a completed future runs at once, in the thread that adds it, and
  // so out of order. Who asks for a future in Python adds callbacks before letting go of the
  // interpreter's lock, so take that once.
  if (asked_from_python) {
    const py::gil_scoped_acquire taken;
  }
  give_value(*future_);
}

void CollectiveWork::give_value(Future& future) {
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

// What has to be waited for before a caller may see this Work as completed; null if nothing.
c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::observe() {
  const std::lock_guard lock(future_mutex_);
  if (!future_) observed_ = true;
  return future_;
}

// ---- What torch asks

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (!settled_) wait_for_operations(timeout);
  settle();
  if (const auto future = observe(); future && !future->completed()) {
    CompletionOrder::complete_inside_callback(place_);
    future->wait();
  }
  if (failure_) std::rethrow_exception(failure_);
  synchronize();
  return true;
}

bool CollectiveWork::isCompleted() {
  if (!settled_) return false;
  const auto future = observe();
  return !future || future->completed();
}

bool CollectiveWork::isSuccess() const { return settled_ && !failure_; }

std::exception_ptr CollectiveWork::exception() const { return settled_ ? failure_ : nullptr; }

std::vector<at::Tensor> CollectiveWork::result() { return outputs_; }

std::uint64_t CollectiveWork::getSequencenumber() const { return sequence_; }

}  // namespace qccl::torch_binding
