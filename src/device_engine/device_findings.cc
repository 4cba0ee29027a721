#include "device_engine/device_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>

#include "device/device.h"
#include "device/gates.h"
#include "device/kernel_images.h"
#include "device/kernels.h"
#include "os/memory.h"

namespace qccl::engine {
namespace {

// `chosen`: by QCCL_DEVICE_KERNELS.
void describe_device_kernels(const std::string& chosen, Findings& found) {
  const device::KernelImages images = device::built_in_kernels();
  std::string text = "none: built without CUDA's nvcc";
  if (!images.empty()) text = fmt::format("PTX, and machine code for sm_{}", images.architectures);
  if (chosen == "off") text = fmt::format("not used, because QCCL_DEVICE_KERNELS is off; built in: {}", text);
  if (!chosen.empty() && chosen != "off") {
    text = fmt::format("those of {}, which QCCL_DEVICE_KERNELS names", chosen);
    if (!std::ifstream(chosen)) {
      found.warning("device kernels", fmt::format("none: QCCL_DEVICE_KERNELS names {}, which can't be read", chosen),
                    "correct the variable or unset it");
      return;
    }
  }
  found.fact("device kernels", text + " (docs/gpu.md)");
}

const char* kernels_of(const device::Runtime& runtime, const device::Traits& traits) {
  const device::KernelImages images = device::built_in_kernels();
  if (images.empty()) return "no kernels built in";
  return device::has_machine_code(images, traits, runtime.driver_number())
             ? "kernels built in as machine code"
             : "kernels built in as PTX, which the driver translates at their first use";
}

void describe_device(const device::Runtime& runtime, int index, Findings& found) {
  const auto read = runtime.traits(index);
  const std::string topic = fmt::format("device {}", index);
  if (!read.ok()) return found.warning(topic, read.error().message, "see whether nvidia-smi shows the device");
  const device::Traits& traits = read.value();
  found.fact(topic, fmt::format("{}, compute capability {}.{}, {} multiprocessors, {} MiB; {}", traits.name,
                                traits.compute_major, traits.compute_minor, traits.multiprocessors,
                                traits.memory_bytes >> 20, kernels_of(runtime, traits)));
}

// Whether a device can use memory that ranks of a host share.
Status try_registration(device::Runtime& runtime, int index) {
  constexpr std::size_t kTried = std::size_t{2} << 20;
  QCCL_ASSIGN(const device::Device* const device, runtime.device(index));
  QCCL_ASSIGN(const os::SharedMemory shared, os::create_shared_memory("qccl-registration", kTried));
  QCCL_ASSIGN(const auto registration, device::Registration::make(*device, shared.mapping.data(), kTried));
  return {};
}

void describe_registration(device::Runtime& runtime, int index, Findings& found) {
  const Status tried = try_registration(runtime, index);
  found.fact("device transfers",
             tried.ok()
                 ? fmt::format("device {} can use shared memory where it lies: tried (cuMemHostRegister)", index)
                 : fmt::format("device {} can't use shared memory where it lies: {}", index, tried.error().message));
}

Status try_gates(device::Runtime& runtime, int index) {
  QCCL_ASSIGN(const device::Device* const device, runtime.device(index));
  QCCL_ASSIGN(const auto gates, device::Gates::open(*device));
  return gates->try_out();
}

// `chosen`: by QCCL_STREAM_ORDER.
void describe_order(device::Runtime& runtime, int index, std::optional<StreamOrder> chosen, Findings& found) {
  constexpr const char* kTopic = "device order";
  if (chosen == StreamOrder::host) return found.fact(kTopic, "host, because QCCL_STREAM_ORDER says so");
  const Status tried = try_gates(runtime, index);
  const char* const of_torch = chosen == StreamOrder::gate ? "torch's wait too, because QCCL_STREAM_ORDER says so"
                                                           : "the torch backend waits on the host by default";
  found.fact(kTopic, tried.ok() ? fmt::format("gate: streams of device {} can wait for calls: tried; {} (docs/gpu.md)",
                                              index, of_torch)
                                : fmt::format("host: streams of device {} can't wait for calls: {}", index,
                                              tried.error().message));
}

void describe_runtime(int local_rank, std::optional<StreamOrder> order, Findings& found) {
  const auto runtime = device::Runtime::open();
  if (!runtime.ok()) return found.fact("devices", "none: " + runtime.error().message);
  const int devices = runtime.value()->device_count();
  found.fact("devices", fmt::format("{}, driver {} (docs/gpu.md)", devices, runtime.value()->driver_version()));
  for (int index = 0; index < devices; ++index) describe_device(*runtime.value(), index, found);
  if (devices == 0) return;
  const int own = std::max(local_rank, 0) % devices;
  describe_registration(*runtime.value(), own, found);
  describe_order(*runtime.value(), own, order, found);
}

}  // namespace

void describe_devices(int local_rank, const Options& options, Findings& found) {
  describe_runtime(local_rank, options.stream_order, found);
  describe_device_kernels(options.device_kernels, found);
}

}  // namespace qccl::engine
