#include "device_engine/staged/device_feedback.h"

#include <thread>

namespace qccl::engine {

Result<std::unique_ptr<DeviceFeedback>> DeviceFeedback::make(std::shared_ptr<const void> owner, StagingDevice& home,
                                                             internal::FeedbackState& state) {
  std::unique_ptr<DeviceFeedback> made(new DeviceFeedback(std::move(owner), home));
  const std::size_t bytes = state.size() * sizeof(float);
  QCCL_ASSIGN(made->residual_, device::DeviceMemory::allocate(home.device(), bytes));
  QCCL_ASSIGN(made->other_, device::DeviceMemory::allocate(home.device(), bytes));
  QCCL_TRY(made->stream().copy_to_device(made->residual_->data(), state.residual(), bytes));
  QCCL_TRY(made->stream().copy_to_device(made->other_->data(), state.other().data(), bytes));
  return made;
}

Status DeviceFeedback::fetch(std::span<float> residual, std::span<float> other) {
  QCCL_ASSIGN(const auto copied, device::Event::create(home_.device()));
  QCCL_TRY(stream().copy_to_host(residual.data(), residual_->data(), residual.size_bytes()));
  QCCL_TRY(stream().copy_to_host(other.data(), other_->data(), other.size_bytes()));
  QCCL_TRY(copied->record(stream().handle()));
  while (true) {
    QCCL_ASSIGN(const bool happened, copied->has_happened());
    if (happened) return {};
    std::this_thread::yield();
  }
}

Status DeviceFeedback::keep(std::uint64_t first, std::size_t count) {
  const std::size_t at = first * sizeof(float);
  kept_.emplace_back(first, count);
  return stream().copy_on_device(other_->data() + at, residual_->data() + at, count * sizeof(float));
}

// A device that fails here has lost the state, which fetch() then says.
void DeviceFeedback::take_back() {
  for (const auto& [first, count] : kept_) {
    const std::size_t at = first * sizeof(float);
    static_cast<void>(stream().copy_on_device(residual_->data() + at, other_->data() + at, count * sizeof(float)));
  }
}

}  // namespace qccl::engine
