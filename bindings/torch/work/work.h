// An operation in flight as torch sees it. The tensors stay alive until the operation has ended, even if the program
// drops the Work.
//
// wait() drives the library's progress in the calling thread. The first thread that notices the end, a waiting thread
// or one of the completion pool, completes the future and runs its callbacks, before wait() returns. isCompleted() is
// true once the future is complete.
//
// Inside a callback, wait() leaves the future to the pool and does not wait for its callbacks: their calls may come
// after those of the callback that waits.
//
// Of a call that ends on streams (TorchCall::ends_on_streams()), wait() and the future only make streams wait. A
// failure that comes later is known to exception() and the group.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "torch_release.h"
#include "work/call_timeout.h"
#include "work/callback_order.h"
#include "work/completion_pool.h"
#include "work/hooks.h"
#include "work/operation_trace.h"
#include "work/torch_call.h"

namespace qccl::torch_binding {

struct CallEnd {
  std::exception_ptr failure;  // torch's exception; null: success
  c10d::WorkResult result = c10d::WorkResult::SUCCESS;
  c10d::ErrorType error = c10d::ErrorType::SUCCESS;
  std::chrono::steady_clock::time_point at{};
};

struct WorkShare;

// A call's operations in the library. The thread that sees the first one end posts the call's later operation, if it
// has one. Thread-safe after post().
class PostedOperations {
 public:
  // Takes the call's posts. Throws torch's exceptions.
  void post(TorchCall& call, Communicator group);
  // Returns when the operations have ended, with or without success. Throws only if `timeout` passes first.
  void wait(std::chrono::milliseconds timeout);

  // Of the call's tensors, without the CPU.
  const std::vector<c10::Device>& devices() const { return devices_; }
  // TorchCall::ends_on_streams()
  bool end_on_streams() const { return end_on_streams_; }
  // If they do, sets failed_on_stream where they fail, before a stream that waits for them goes on.
  void note_failure(const std::shared_ptr<WorkShare>& share) const;
  // Makes the devices' current streams wait for them. Throws torch's exceptions.
  void block_current_streams() const;
  // Gives the future its value, for those who wait for the streams of torch's pool on which it records its events.
  void complete(c10::ivalue::Future& future, const c10::IValue& value) const;
  // Call it when the first operations have ended. Returns whether there is a later one.
  bool post_later();
  // Calls `ended` once the operations posted last have ended, in the thread that ends them.
  void notify(const std::function<void()>& ended) const;

  // Call these when all operations have ended.
  CallEnd end() const;
  int source() const { return first_.source(); }

  std::function<std::uint64_t()> first_number() const {
    return [first = first_] { return first.number(); };
  }

 private:
  void block(const std::vector<c10::Stream>& streams) const;

  qccl::Work first_;
  std::vector<c10::Device> devices_;
  bool end_on_streams_ = false;
  mutable std::mutex mutex_;  // guards the members below; never taken with the interpreter's lock held
  TorchCall::Post later_post_;
  std::optional<Communicator> group_;  // for later_post_; unset once that was called
  std::optional<qccl::Work> later_;
  std::exception_ptr later_failure_;  // it could not be posted
};

// A future that is made on request and completed once. Thread-safe.
class LazyFuture {
 public:
  using Future = c10::ivalue::Future;
  using Complete = std::function<void(Future&)>;

  // Makes the future on the first call, and completes it then if `has_value` or `is_early`.
  // `devices`: of the tensors in its value, without the CPU.
  c10::intrusive_ptr<Future> get(const c10::TypePtr& type, std::vector<c10::Device> devices,
                                 const std::atomic<bool>& has_value, const Complete& complete, bool is_early = false) {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<Future>(type, std::move(devices));
      is_given_ = has_value || is_early;
      is_called_back_ = is_given_;
      if (is_given_) complete(*future_);
    }
    return future_;
  }

  // If the future was requested and no thread completes it: does, which runs its callbacks.
  void complete(const Complete& complete) {
    const auto future = to_be_completed();
    if (!future) return;
    try {
      complete(*future);
    } catch (const std::exception&) {
      // A callback threw. The future has its value, and the callback's own future the error.
    }
    is_called_back_ = true;
    is_called_back_.notify_all();
  }

  // If the future was requested: waits until it is complete and, outside of callbacks, until its callbacks have
  // returned.
  void wait() {
    c10::intrusive_ptr<Future> future;
    bool is_own = false;
    {
      const std::lock_guard lock(mutex_);
      future = future_;
      is_own = giver_ == std::this_thread::get_id();
    }
    if (!future) return;
    if (!is_own && !CallbackOrder::inside_callback()) is_called_back_.wait(false);
    future->wait();
  }

  bool is_pending() {
    const std::lock_guard lock(mutex_);
    return future_ && !future_->completed();
  }

 private:
  c10::intrusive_ptr<Future> to_be_completed() {
    const std::lock_guard lock(mutex_);
    if (!future_ || std::exchange(is_given_, true)) return nullptr;
    giver_ = std::this_thread::get_id();
    return future_;
  }

  std::mutex mutex_;  // held only briefly; guards the members below
  c10::intrusive_ptr<Future> future_;
  bool is_given_ = false;  // or being given, by the thread that set this
  std::thread::id giver_;
  std::atomic<bool> is_called_back_ = false;  // the giver has run the callbacks
};

// The state that the works of one process group share.
struct WorkShare {
  std::shared_ptr<CallbackOrder> order;
  std::shared_ptr<CompletionPool> pool;
  std::shared_ptr<OperationTrace> trace;
  std::size_t trace_group = 0;
  std::function<void(const std::string& reason)> abort_group;
  std::atomic<c10d::ErrorType> first_error = c10d::ErrorType::SUCCESS;
  CallTimeout timeout;
  bool may_gate = false;                      // streams wait for calls on a device, where they can
  std::atomic<bool> failed_on_stream{false};  // a stream went on after a failure: later calls raise it on the host
  std::shared_ptr<GroupHooks> hooks = std::make_shared<GroupHooks>();
  std::uint64_t first_completion_key = 0;  // of the group; no other group of the process has its keys
  std::atomic<std::uint64_t> completion_keys = 0;

  std::uint64_t next_completion_key() { return first_completion_key + completion_keys++; }
};

class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, TorchCall call, std::shared_ptr<WorkShare> share);

  // Posts the call's operations. Call it once, before anything else. Throws torch's exceptions.
  void post(const Communicator& group, std::uint64_t sequence);
  // For an asynchronous call, once: keeps the Work alive until its operations have ended, then
  // completes it from the pool.
  void complete_from_pool(bool may_post_later = true);
  // Waits until outputs are final, whether or not the operations succeeded; runs no callbacks. Returns false if the
  // deadline came first.
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
  std::chrono::milliseconds getTimeout() const QCCL_OVERRIDE_2_14 { return timeout_; }
  std::uint64_t getCompletionKey() const QCCL_OVERRIDE_2_15 { return completion_key_; }

 private:
  void complete();
  void end();
  bool take_results();
  void run_hooks(bool group_failed) const;
  void complete_value(c10::ivalue::Future& future) const;
  void complete_result(c10::ivalue::Future& future) const;

  TorchCall call_;
  const std::shared_ptr<WorkShare> share_;
  const std::chrono::milliseconds timeout_;
  std::chrono::milliseconds timeout_extension_{};  // that it owns
  const std::uint64_t completion_key_;
  PostedOperations operations_;
  std::uint64_t sequence_ = 0;
  c10::SmallVector<OperationTrace::Record, 1> trace_records_;
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
  CoalescedPart(int rank, c10d::OpType type, std::uint64_t completion_key)
      : c10d::Work(rank, type), completion_key_(completion_key) {}
  std::uint64_t getCompletionKey() const QCCL_OVERRIDE_2_15 { return completion_key_; }
  void set_whole(c10::intrusive_ptr<CollectiveWork> whole) {
    const std::lock_guard lock(mutex_);
    whole_ = std::move(whole);
  }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    return ask(true, [timeout](CollectiveWork& whole) { return whole.wait(timeout); });
  }
  bool isCompleted() override {
    return ask(false, [](CollectiveWork& whole) { return whole.isCompleted(); });
  }
  bool isSuccess() const override {
    return ask(false, [](CollectiveWork& whole) { return whole.isSuccess(); });
  }
  std::exception_ptr exception() const override {
    return ask(std::exception_ptr(), [](CollectiveWork& whole) { return whole.exception(); });
  }
  std::vector<at::Tensor> result() override {
    return ask(std::vector<at::Tensor>(), [](CollectiveWork& whole) { return whole.result(); });
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    using Future = c10::intrusive_ptr<c10::ivalue::Future>;
    if (auto future = ask(Future(), [](CollectiveWork& whole) { return whole.getFuture(); })) return future;
    C10_THROW_ERROR(DistBackendError, "qccl: calls that are being coalesced have no future before they are ended");
  }

 private:
  // The whole's answer; `before` while there is no whole.
  template <class Answer, class Question>
  Answer ask(Answer before, const Question& question) const {
    c10::intrusive_ptr<CollectiveWork> whole;
    {
      const std::lock_guard lock(mutex_);
      whole = whole_;
    }
    return whole == nullptr ? before : question(*whole);
  }

  const std::uint64_t completion_key_;
  mutable std::mutex mutex_;
  c10::intrusive_ptr<CollectiveWork> whole_;
};

}  // namespace qccl::torch_binding
