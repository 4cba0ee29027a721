// The public functions of qccl/device.h. They ask the driver outside of any call.
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "qccl/device.h"

namespace qccl {
namespace {

// One a process, never closed: memory that allocate_on_device() gave may be freed at the very end.
Result<std::unique_ptr<device::Runtime>>& runtime() {
  static auto* const opened = new Result<std::unique_ptr<device::Runtime>>(device::Runtime::open());
  return *opened;
}

Result<std::shared_ptr<void>> allocate(std::size_t bytes, int index) {
  if (!runtime()) return Failure(runtime().error());
  QCCL_ASSIGN(const device::Device* const device, (*runtime())->device(index));
  QCCL_ASSIGN(std::shared_ptr<device::DeviceMemory> memory, device::DeviceMemory::allocate(*device, bytes));
  std::byte* const data = memory->data();
  return std::shared_ptr<void>(std::move(memory), data);
}

}  // namespace

std::optional<int> current_device() {
  if (!runtime()) return std::nullopt;
  return (*runtime())->current();
}

MemoryPlace place_of(const void* memory, int index) {
  if (!runtime()) return {};
  auto device = (*runtime())->device(index);
  if (!device) device = (*runtime())->device(0);
  if (!device) return {};
  const auto place = (*device)->place_of(memory);
  if (!place || place.value().type == device::MemoryType::unknown) return {};
  if (place.value().is_managed) return {MemoryHome::managed, place.value().device};
  if (place.value().type == device::MemoryType::host) return {MemoryHome::pinned, -1};
  return {MemoryHome::device, place.value().device};
}

std::shared_ptr<void> allocate_on_device(std::size_t bytes, int device) {
  return memory_checked([&] { return allocate(bytes, device).take_or_throw(); });
}

}  // namespace qccl
