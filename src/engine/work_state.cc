#include "engine/work_state.h"

namespace qccl::internal {

void WorkState::complete(std::optional<ErrorInfo> failure) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void WorkState::notify(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace qccl::internal
