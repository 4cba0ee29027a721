// What a library that is built without devices (QCCL_DEVICES=OFF) has in the place of device_engine/.
#include <memory>
#include <optional>
#include <string>

#include "device_engine/device_findings.h"
#include "device_engine/devices.h"
#include "qccl/device.h"
#include "qccl/error.h"

namespace qccl {
namespace engine {
namespace {

constexpr const char* kNone =
    "this QCCL was built without devices; build it with QCCL_DEVICES=ON, or pass host memory and no stream";

class NoDevices final : public Devices {
  void set_frame_memory(std::vector<FrameRooms::Memory>) override {}
  Result<MemoryKind> kind_of(const DeviceStream&, std::span<const UsedBuffer>) override { return unsupported(); }
  Result<DevicePartPtr> begin(const DeviceStream&, const DeviceBuffers&, MemoryKind, const ComputedCall*) override {
    return unsupported();
  }
  Result<bool> has_gates(int) override { return unsupported(); }
  Result<std::optional<StreamGate>> close_gate(const DeviceStream&) override { return unsupported(); }
  bool open_gate(const StreamGate&) override { return false; }
  std::shared_ptr<void> watch_gates(std::function<std::uint64_t()>) override { return nullptr; }

  static Failure unsupported() { return Failure(ErrorKind::unsupported, kNone); }
};

}  // namespace

std::shared_ptr<Devices> open_devices(const Options&) { return std::make_shared<NoDevices>(); }

void describe_devices(int, const Options&, Findings& found) {
  found.fact("devices", "none: this QCCL was built without devices (QCCL_DEVICES=OFF)");
}

}  // namespace engine

std::optional<int> current_device() { return std::nullopt; }

MemoryPlace place_of(const void*, int) { return {}; }

std::shared_ptr<void> allocate_on_device(std::size_t, int) {
  throw Error({.kind = ErrorKind::unsupported, .message = std::string("QCCL: ") + engine::kNone});
}

}  // namespace qccl
