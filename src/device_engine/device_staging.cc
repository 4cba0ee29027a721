#include "device_engine/device_staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/log.h"
#include "device/kernels.h"
#include "device_engine/lanes/device_compute.h"
#include "device_engine/lanes/device_layout.h"
#include "device_engine/staged/device_feedback.h"

namespace qccl::engine {
namespace {

Failure refuse(const UsedBuffer& buffer, const std::string& what) {
  return Failure(ErrorKind::invalid_argument, fmt::format("the {} {}", buffer.name, what));
}

Result<MemoryKind> kind_of_buffer(const device::Device& device, const UsedBuffer& buffer) {
  QCCL_ASSIGN(const device::MemoryPlace place, device.place_of(buffer.begin));
  if (place.is_managed) {
    return refuse(buffer, "is managed memory, which moves between host and device; copy it to device memory");
  }
  if (place.type == device::MemoryType::host) return MemoryKind::host;
  if (place.type == device::MemoryType::unknown) {
    return refuse(buffer, "is memory that the device's driver does not know; leave `stream` unset for host memory");
  }
  if (place.device == device.index()) return MemoryKind::device;
  return refuse(buffer, fmt::format("is on device {}, but the stream is device {}'s", place.device, device.index()));
}

const char* name_of(MemoryKind kind) { return kind == MemoryKind::device ? "device memory" : "pinned host memory"; }

}  // namespace

Result<StagingDevice*> DeviceStaging::open(int device) {
  const std::lock_guard lock(mutex_);
  if (runtime_ == nullptr) {
    QCCL_ASSIGN(runtime_, device::Runtime::open());
    devices_.resize(static_cast<std::size_t>(runtime_->device_count()));
  }
  QCCL_ASSIGN(const device::Device* const opened, runtime_->device(device));
  auto& staging = devices_[static_cast<std::size_t>(device)];
  if (staging == nullptr) {
    auto kernels = load_kernels(*opened);
    auto frames = kernels != nullptr ? reach_frames(*opened) : device::ReachedMemory();
    const auto make_compute = [](const ComputeContext& context) { return std::make_unique<DeviceCompute>(context); };
    QCCL_ASSIGN(staging,
                StagingDevice::open(*opened, {shadows_, std::move(frames)}, {std::move(kernels), make_compute}));
  }
  return staging.get();
}

// Once, for all devices.
Result<device::ReachedMemory> DeviceStaging::register_frames(const device::Device& device) {
  std::size_t bytes = 0;
  for (const FrameRooms::Memory& each : frame_memory_) bytes += each.bytes.size();
  if (bytes > pinned_limit_) {
    frame_memory_.clear();
    return Failure(ErrorKind::resource_exhausted,
                   fmt::format("QCCL_PINNED_LIMIT is {} bytes, and these are {}", pinned_limit_, bytes));
  }
  for (FrameRooms::Memory& each : std::exchange(frame_memory_, {})) {
    Status added = frames_.add(device, std::move(each.owner), each.bytes);
    if (added.ok()) continue;
    frames_.clear();
    return Failure(added.error());
  }
  return frames_.on(device);
}

// Nothing, with a warning, where devices can't: payloads are then copied between frames and pinned memory by the host.
device::ReachedMemory DeviceStaging::reach_frames(const device::Device& device) {
  auto reached = register_frames(device);
  if (reached.ok()) return std::move(*reached);
  log(LogLevel::warning, fmt::format("the host copies what devices send to other ranks of this host, because they "
                                     "can't write to the memory that the ranks share: {}",
                                     reached.error().message));
  return {};
}

// Null, with a warning, if they can't be loaded: the host then computes what it can compute as well.
std::unique_ptr<device::Kernels> DeviceStaging::load_kernels(const device::Device& device) {
  device::KernelImages images = device::built_in_kernels();
  if (kernels_ == "off") return nullptr;
  if (!kernels_.empty()) {
    std::ifstream file(kernels_, std::ios::binary);
    image_.assign(std::istreambuf_iterator<char>(file), {});
    images = {.cubins = image_.data(), .ptx = image_.c_str(), .bytes = image_.size()};
  }
  if (images.empty()) return nullptr;
  auto loaded = images.bytes > 0 ? device::Kernels::load(device, images)
                                 : Failure(ErrorKind::invalid_argument, "QCCL_DEVICE_KERNELS: no file " + kernels_);
  if (loaded.ok()) return std::move(*loaded);
  log(LogLevel::warning, fmt::format("the host computes for device {}, whose kernels can't be loaded: {}",
                                     device.index(), loaded.error().message));
  return nullptr;
}

Result<MemoryKind> DeviceStaging::kind_of(const DeviceStream& stream, std::span<const UsedBuffer> buffers) {
  QCCL_ASSIGN(const StagingDevice* const staging, open(stream.device));
  const UsedBuffer* first = nullptr;
  MemoryKind kind = MemoryKind::device;
  for (const UsedBuffer& buffer : buffers) {
    if (buffer.begin == nullptr || buffer.bytes == 0) continue;
    QCCL_ASSIGN(const MemoryKind own, kind_of_buffer(staging->device(), buffer));
    if (first != nullptr && own != kind) {
      return refuse(buffer, fmt::format("is {}, but the {} is {}", name_of(own), first->name, name_of(kind)));
    }
    first = &buffer;
    kind = own;
  }
  return kind;
}

Result<DevicePartPtr> DeviceStaging::begin(const DeviceStream& stream, const DeviceBuffers& buffers, MemoryKind kind,
                                           const ComputedCall* call) {
  QCCL_ASSIGN(StagingDevice* const device, open(stream.device));
  auto use = StagedMemory::Use::where_it_lies;
  LaneMemory lanes;
  if (kind == MemoryKind::device) {
    if (call != nullptr) {
      QCCL_ASSIGN(lanes, lane_memory(*device, buffers, *call));
    }
    use = lanes.bytes > 0 ? StagedMemory::Use::lanes : StagedMemory::Use::shadow;
  }
  QCCL_ASSIGN(StagedCallPtr begun, device->take());
  QCCL_TRY(begun->begin(static_cast<CUstream_st*>(stream.handle), buffers, use, lanes));
  return DevicePartPtr(std::move(begun));
}

Result<LaneMemory> DeviceStaging::lane_memory(StagingDevice& device, const DeviceBuffers& buffers,
                                              const ComputedCall& call) {
  if (std::max(buffers.input_bytes, buffers.output_bytes) <= kShortBytes) return LaneMemory{0, "it is short"};
  if (call.keeps_input) return LaneMemory{0, "it keeps its input"};
  const LaneMemory lanes{device_lane_bytes(call.plan, call.world), "kernels lack its algorithm or codec"};
  if (lanes.bytes == 0 || call.feedback == nullptr) return lanes;
  QCCL_ASSIGN(const bool moved, move(*call.feedback, device));
  return moved ? lanes : LaneMemory{0, "its error feedback stays in host memory"};
}

Result<bool> DeviceStaging::move(internal::FeedbackState& feedback, StagingDevice& device) {
  if (!device.has_kernels() || feedback.is_busy()) return false;
  if (feedback.on_device() != nullptr && feedback.on_device()->place() == &device) return true;
  QCCL_TRY(feedback.bring_home());
  auto moved = DeviceFeedback::make(shared_from_this(), device, feedback);
  if (moved.ok()) feedback.move_to(std::move(*moved));
  return moved.ok();
}

Result<device::Gates*> DeviceStaging::gates(int device) {
  QCCL_ASSIGN(StagingDevice* const staging, open(device));
  return may_gate_ ? staging->gates() : nullptr;
}

Result<bool> DeviceStaging::has_gates(int device) {
  QCCL_ASSIGN(const device::Gates* const found, gates(device));
  return found != nullptr;
}

Result<std::optional<StreamGate>> DeviceStaging::close_gate(const DeviceStream& stream) {
  QCCL_ASSIGN(device::Gates* const found, gates(stream.device));
  if (found == nullptr) return std::optional<StreamGate>();
  watch(*found);
  QCCL_ASSIGN(const auto gate, found->close(static_cast<CUstream_st*>(stream.handle)));
  if (!gate) return std::optional<StreamGate>();
  return std::optional<StreamGate>({.of_device = found, .word = gate->word, .count = gate->count});
}

bool DeviceStaging::open_gate(const StreamGate& gate) {
  return static_cast<device::Gates*>(gate.of_device)->open({gate.word, gate.count});
}

void DeviceStaging::watch(device::Gates& gates) {
  std::shared_ptr<GateWatch> held;
  {
    const std::lock_guard lock(mutex_);
    held = watch_.lock();
  }
  if (held != nullptr) held->add(gates);
}

std::shared_ptr<void> DeviceStaging::watch_gates(std::function<std::uint64_t()> rounds) {
  auto watch = std::make_shared<GateWatch>(std::move(rounds));
  const std::lock_guard lock(mutex_);
  watch_ = watch;
  return watch;
}

std::shared_ptr<Devices> open_devices(const Options& options) { return std::make_shared<DeviceStaging>(options); }

}  // namespace qccl::engine
