// What training asks of a device beside operators: lower precision under autocast, and DDP's timer.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
}

// By the host's clock.
struct FakeTimer final : c10d::Timer {
  explicit FakeTimer(c10::Device) {}
  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    const auto began = getTimestamp(start), ended = getTimestamp(end);
    if (!began || !ended || *ended < *began) return std::nullopt;
    return *ended - *began;
  }
};

}  // namespace
}  // namespace qccl::fake_device

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, qccl::fake_device::FakeTimer);
}  // namespace c10d
