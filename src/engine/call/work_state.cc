#include "engine/call/work_state.h"

#include <utility>

namespace qccl::internal {

void WorkState::set_number(std::uint64_t number) {
  number_.store(number, std::memory_order_relaxed);
  if (whole_ != nullptr && whole_->number() == 0) whole_->set_number(number);
}

bool WorkState::is_part_of(const WorkState& other) const {
  return this == &other || (whole_ != nullptr && whole_->is_part_of(other));
}

void WorkState::complete() {
  leave_count();
  // Release: pairs with done(). Acquire: pairs with notify(). A work that nobody listens to needs no lock.
  if (progress_.exchange(Progress::done, std::memory_order_acq_rel) == Progress::has_callbacks) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      callbacks.swap(callbacks_);
    }
    for (const auto& callback : callbacks) callback();
  }
  if (whole_ != nullptr) std::exchange(whole_, nullptr)->complete_part(failure_);
}

void WorkState::complete_part(const SharedFailure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure && !parts_failure_) parts_failure_ = failure;
    if (--parts_left_ > 0) return;
  }
  failure_ = std::move(parts_failure_);
  complete();
}

void WorkState::notify(std::function<void()> callback) {
  {
    // Under the lock: complete() takes it before it reads the callbacks, if it finds that there are any.
    const std::lock_guard lock(mutex_);
    Progress seen = Progress::running;
    const bool first = progress_.compare_exchange_strong(seen, Progress::has_callbacks, std::memory_order_acq_rel);
    if (first || seen == Progress::has_callbacks) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace qccl::internal
