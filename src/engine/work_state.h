// What a Work handle points to: done or not, and how it ended.
//
// Owner: shared by the user's handles and, while in flight, the engine. Threads: complete() is
// called once by the driver; the rest from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "qccl/error.h"

namespace qccl::internal {

struct WorkState {
  // Pairs with the release store in complete(): whoever sees true also sees `failure` and the
  // operation's output.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Only after done().
  const std::optional<ErrorInfo>& failure() const { return failure_; }

  // Marks the end and runs the callbacks, outside the lock.
  void complete(std::optional<ErrorInfo> failure);

  // Runs `callback` at the end, or at once if that has come.
  void notify(std::function<void()> callback);

  // The comm::Context that drives the operation, for handles that wait; set before posting. Weak:
  // the last handle may be dropped by the driver itself, which must not destroy its own context.
  std::weak_ptr<void> context;

 private:
  std::atomic<bool> done_{false};
  std::optional<ErrorInfo> failure_;
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_;  // guarded by mutex_
};

}  // namespace qccl::internal
