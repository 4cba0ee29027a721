#include "work/work.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <utility>

#include "errors.h"

namespace qccl::torch_binding {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Counts a Work's operations down and holds the Work until the last has ended.
struct Pending {
  std::atomic<std::size_t> operations;
  c10::intrusive_ptr<CollectiveWork> work;
};

std::vector<OperationTrace::Tensor> shapes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<OperationTrace::Tensor> shapes;
  for (const at::Tensor& tensor : tensors) {
    shapes.push_back({tensor.sizes().vec(), c10::toString(tensor.scalar_type())});
  }
  return shapes;
}

// Posts several operations as one group of the library (group_start() to group_end()).
std::vector<qccl::Work> post_all(const std::vector<Call::Post>& posts, Communicator group) {
  return with_torch_errors([&]() -> std::vector<qccl::Work> {
    if (posts.size() == 1) return {posts.front()(group)};
    group.group_start();
    for (const Call::Post& post : posts) post(group);
    return {group.group_end()};
  });
}

c10d::ErrorType error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::deadline_exceeded: return c10d::ErrorType::TIMEOUT;
    case ErrorKind::peer_lost: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

CollectiveWork::CollectiveWork(int rank, Call call, std::shared_ptr<WorkShare> share)
    : c10d::Work(rank, call.type, call.title, call.inputs),
      call_(std::move(call)),
      outputs_(call_.outputs),
      is_message_(call_.is_message()),
      share_(std::move(share)) {}

void CollectiveWork::post(const Communicator& group, std::uint64_t sequence) {
  operations_ = post_all(call_.posts, group);
  if (call_.later_post) group_ = group;
  sequence_ = sequence;
  trace_place_ = share_->trace->begin(share_->trace_group, traced());
}

OperationTrace::Operation CollectiveWork::traced() const {
  OperationTrace::Operation operation{.name = call_.title,
                                      .is_message = is_message_,
                                      .peer = call_.peer,
                                      .sequence = sequence_,
                                      .number = [first = operations_.front()] { return first.number(); },
                                      .parts = call_.posts.size(),
                                      .timeout_ms = call_.timeout.count(),
                                      .inputs = shapes_of(call_.inputs),
                                      .outputs = {}};
  for (const auto& list : outputs_) {
    for (auto& shape : shapes_of(list)) operation.outputs.push_back(std::move(shape));
  }
  return operation;
}

void CollectiveWork::complete_from_pool() { complete_from_pool_after(operations_); }

void CollectiveWork::complete_from_pool_after(const Operations& operations) {
  share_->pool->expect();
  auto pending = std::make_shared<Pending>();
  pending->operations = operations.size() + 1;
  pending->work = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
  // Runs on the thread that ends the operation. That thread must not free tensors, so the reference
  // to the Work moves on to the pool.
  const auto ended = [pending, first = &operations == &operations_] {
    if (pending->operations.fetch_sub(1) != 1) return;
    const auto pool = pending->work->share_->pool;
    pool->push([work = std::move(pending->work), first] {
      const Operations followers = first ? work->follow_up() : Operations{};
      if (followers.empty()) return work->settle();
      work->complete_from_pool_after(followers);
    });
  };
  for (const qccl::Work& operation : operations) operation.notify(ended);
  ended();
}

// ---- The end of the operations

// Returns when every operation has ended, with or without success. Throws only if `timeout` passes first.
void CollectiveWork::wait_for_operations(std::chrono::milliseconds timeout) {
  const auto wait_for_each = [timeout](const Operations& operations) {
    for (const qccl::Work& operation : operations) {
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
  };
  wait_for_each(operations_);
  wait_for_each(follow_up());
}

// Call when the first operations have ended: posts the later ones, once, and returns them; none if the first failed.
CollectiveWork::Operations CollectiveWork::follow_up() {
  const std::lock_guard lock(settling_);
  if (!group_) return followers_;
  Communicator group = *std::exchange(group_, std::nullopt);
  for (const qccl::Work& operation : operations_) {
    if (operation.error()) return {};
  }
  try {
    followers_ = {with_torch_errors([&] { return call_.later_post(group); })};
  } catch (const std::exception&) {
    follow_up_failure_ = std::current_exception();
  }
  return followers_;
}

void CollectiveWork::wait_for_results() {
  if (!settled_) wait_for_operations(kNoTimeout);
  settle();
}

bool CollectiveWork::wait_for_results_until(SteadyClock::time_point deadline) {
  if (settled_) return true;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
  try {
    wait_for_operations(std::max(left, std::chrono::milliseconds(1)));
  } catch (const std::exception&) {
    return false;
  }
  settle();
  return true;
}

// Call when the operations have ended: copies results to their tensors and frees the memory that
// the library used, then completes the futures, whose callbacks run here. Does this once; returns
// when all of it is done, except for callbacks that run in another thread.
void CollectiveWork::settle() {
  if (!settled_) {
    const std::lock_guard lock(settling_);
    if (!settled_) {
      failure_ = outcome();
      ended_ = SteadyClock::now();
      share_->trace->end(trace_place_, failure_ ? text_of(failure_) : "");
      call_ = Call{call_.type, call_.title};
      settled_ = true;
      finish(failure_);
    }
  }
  complete(value_, &CollectiveWork::give_value);
  complete(result_value_, &CollectiveWork::give_result);
}

// Finishes the call and returns the failure of the first operation that failed, or null.
std::exception_ptr CollectiveWork::outcome() {
  for (const auto& work : call_.earlier) work->wait_for_results();
  for (const Operations* operations : {&operations_, &followers_}) {
    for (const qccl::Work& operation : *operations) {
      const auto error = operation.error();
      if (!error) continue;
      note_failure(*error);
      return to_torch(*error);
    }
  }
  if (follow_up_failure_) {
    result_ = c10d::WorkResult::UNKNOWN;
    return follow_up_failure_;
  }
  try {
    call_.memory.finish();
    for (const auto& ending : call_.endings) ending();
  } catch (const std::exception&) {
    result_ = c10d::WorkResult::UNKNOWN;
    return std::current_exception();
  }
  return nullptr;
}

void CollectiveWork::note_failure(const ErrorInfo& error) {
  const bool late = error.kind == ErrorKind::deadline_exceeded;
  result_ = late ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
  auto none = c10d::ErrorType::SUCCESS;
  share_->first_error.compare_exchange_strong(none, error_type(error.kind));
}

// ---- Futures

void CollectiveWork::complete(LazyFuture& lazy, void (CollectiveWork::*give)(Future&) const) {
  c10::intrusive_ptr<Future> future;
  bool given = false;
  {
    const std::lock_guard lock(future_mutex_);
    future = lazy.future;
    given = std::exchange(lazy.given, true);
  }
  if (!future) return;
  if (given) {
    future->wait();
  } else {
    (this->*give)(*future);
  }
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::future_of(LazyFuture& lazy, const c10::TypePtr& type,
                                                                  void (CollectiveWork::*give)(Future&) const) {
  const std::lock_guard lock(future_mutex_);
  if (lazy.future) return lazy.future;
  lazy.future = c10::make_intrusive<Future>(type);
  if (settled_) {
    lazy.given = true;
    (this->*give)(*lazy.future);
  }
  return lazy.future;
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (outputs_.size() > 1) type = c10::ListType::create(type);
  return future_of(value_, type, &CollectiveWork::give_value);
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFutureResult() {
  return future_of(result_value_, c10::IntType::get(), &CollectiveWork::give_result);
}

void CollectiveWork::give_value(Future& future) const {
  try {
    if (failure_) {
      future.setError(failure_);
    } else if (outputs_.size() > 1) {
      future.markCompleted(c10::IValue(outputs_));
    } else {
      future.markCompleted(c10::IValue(result_list()));
    }
  } catch (const std::exception&) {
    // A callback threw. The future has its value, and the callback's own future the error.
  }
}

void CollectiveWork::give_result(Future& future) const {
  try {
    future.markCompleted(c10::IValue(static_cast<std::int64_t>(result_)));
  } catch (const std::exception&) {
    // As above.
  }
}

// ---- torch's queries

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
  return !value_.future || value_.future->completed();
}

bool CollectiveWork::isSuccess() const { return settled_ && !failure_; }

std::exception_ptr CollectiveWork::exception() const { return settled_ ? failure_ : nullptr; }

int CollectiveWork::sourceRank() const { return operations_.empty() ? -1 : operations_.front().source(); }

std::vector<at::Tensor> CollectiveWork::result() {
  if (outputs_.size() > 1) {
    C10_THROW_ERROR(DistBackendError, "qccl: result() of a list of lists: use get_future().value()");
  }
  return result_list();
}

std::vector<at::Tensor> CollectiveWork::result_list() const {
  return outputs_.empty() ? std::vector<at::Tensor>{} : outputs_.front();
}

void CollectiveWork::abort() {
  if (!settled_) share_->abort_group("this rank's program aborted one of its operations");
}

float CollectiveWork::getDuration() const {
  if (!settled_) C10_THROW_ERROR(DistBackendError, "qccl: the operation has not ended, so it has no duration yet");
  return std::chrono::duration<float, std::milli>(ended_ - began_).count();
}

// ---- Parts of coalesced calls

void CoalescedPart::set_whole(c10::intrusive_ptr<CollectiveWork> whole) {
  const std::lock_guard lock(whole_mutex_);
  whole_ = std::move(whole);
}

c10::intrusive_ptr<CollectiveWork> CoalescedPart::whole() const {
  const std::lock_guard lock(whole_mutex_);
  return whole_;
}

bool CoalescedPart::wait(std::chrono::milliseconds timeout) {
  const auto work = whole();
  return work == nullptr || work->wait(timeout);
}

bool CoalescedPart::isCompleted() {
  const auto work = whole();
  return work != nullptr && work->isCompleted();
}

bool CoalescedPart::isSuccess() const {
  const auto work = whole();
  return work != nullptr && work->isSuccess();
}

std::exception_ptr CoalescedPart::exception() const {
  const auto work = whole();
  return work == nullptr ? nullptr : work->exception();
}

std::vector<at::Tensor> CoalescedPart::result() {
  const auto work = whole();
  return work == nullptr ? std::vector<at::Tensor>{} : work->result();
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedPart::getFuture() {
  if (const auto work = whole()) return work->getFuture();
  C10_THROW_ERROR(DistBackendError, "qccl: calls that are being coalesced have no future before they are ended");
}

}  // namespace qccl::torch_binding
