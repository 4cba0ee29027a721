#include "engine/work_state.h"

#include <utility>

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
  if (whole_ != nullptr) std::exchange(whole_, nullptr)->complete_part(failure_);
}

void WorkState::complete_part(const std::optional<ErrorInfo>& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure && !parts_failure_) parts_failure_ = failure;
    if (--parts_left_ > 0) return;
  }
  complete(std::exchange(parts_failure_, std::nullopt));
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
