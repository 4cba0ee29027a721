#include "engine/call/feedback_state.h"

#include <algorithm>

namespace qccl::internal {
namespace {

float* element(std::vector<float>& values, std::uint64_t index) {
  return values.data() + static_cast<std::ptrdiff_t>(index);
}

}  // namespace

Status FeedbackState::bring_home() {
  if (on_device_ == nullptr) return {};
  QCCL_TRY(on_device_->fetch(residual_, other_));
  on_device_.reset();
  return {};
}

void FeedbackState::save(std::uint64_t first, std::size_t count) {
  std::copy_n(element(residual_, first), count, element(other_, first));
  saved_ += count;
}

void FeedbackState::take_back(std::uint64_t first, std::size_t count) {
  std::swap_ranges(element(residual_, first), element(residual_, first) + count, element(other_, first));
}

void FeedbackState::end(bool well) {
  if (!is_busy()) return;
  if (is_saved()) other_counter_ = well ? counter_ : counter_ + 1;
  if (well) ++counter_;
  busy_.store(false, std::memory_order_release);
}

void FeedbackState::swap() {
  take_back(0, size());
  std::swap(counter_, *other_counter_);
}

void FeedbackState::reset(std::size_t first, std::size_t count) {
  std::fill_n(element(residual_, first), count, 0.0f);
  std::fill_n(element(other_, first), count, 0.0f);
}

}  // namespace qccl::internal
