// A future that is made on request and completed once.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace qccl::torch_binding {

// Thread-safe.
class LazyFuture {
 public:
  using Future = c10::ivalue::Future;
  using Complete = std::function<void(Future&)>;

  // Makes the future on the first call, and completes it then if `has_value`.
  c10::intrusive_ptr<Future> get(const c10::TypePtr& type, const std::atomic<bool>& has_value,
                                 const Complete& complete) {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<Future>(type);
      is_given_ = has_value;
      if (is_given_) complete(*future_);
    }
    return future_;
  }

  // If the future was requested: completes it, or waits for the thread that does.
  void complete(const Complete& complete) {
    c10::intrusive_ptr<Future> future;
    bool is_given = false;
    {
      const std::lock_guard lock(mutex_);
      future = future_;
      is_given = std::exchange(is_given_, true);
    }
    if (!future) return;
    if (is_given) return future->wait();
    try {
      complete(*future);
    } catch (const std::exception&) {
      // A callback threw. The future has its value, and the callback's own future the error.
    }
  }

  bool is_pending() {
    const std::lock_guard lock(mutex_);
    return future_ && !future_->completed();
  }

 private:
  std::mutex mutex_;  // held only briefly
  c10::intrusive_ptr<Future> future_;
  bool is_given_ = false;  // or being given, by the thread that set this
};

}  // namespace qccl::torch_binding
