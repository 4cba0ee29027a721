#include "support/fake_cuda/fake_program.h"

#include <cstring>

#include "support/fake_cuda/fake_driver.h"

namespace qccl::device::fake {
namespace {

// How late a stream is at most, if the hazard is not taken away before: longer than gates wait when they are tried.
constexpr std::chrono::seconds kLate(30);

// Memory that an item of a stream uses: an allocation that it keeps alive, or the program's own.
struct Place {
  std::shared_ptr<Allocation> allocation;
  std::byte* bytes;
};

Place place_of(DevicePointer address, std::size_t bytes) {
  auto* const memory = reinterpret_cast<std::byte*>(address);
  auto found = driver().find(memory, bytes);
  if (found == nullptr) return {driver().find_on_host(memory, bytes), memory};
  std::byte* const stored = found->storage_of(address);
  return {std::move(found), stored};
}

}  // namespace

Code stream_synchronize(CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamSynchronize", handle, code);
  if (stream != nullptr) stream->synchronize();
  return code;
}

Code launch_host_function(CUstream_st* handle, void (*function)(void*), void* data) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuLaunchHostFunc", handle, code);
  if (stream != nullptr) stream->add([=] { function(data); });
  return code;
}

Code stream_wait_value(CUstream_st* handle, DevicePointer address, std::uint32_t value, unsigned int flags) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamWaitValue32", handle, code);
  if (stream == nullptr) return code;
  if (flags != kStreamWaitAtLeast) return driver().faults.misuse("cuStreamWaitValue32 for one value alone");
  const Place place = place_of(address, sizeof(value));
  if (place.allocation == nullptr)
    return driver().faults.misuse("cuStreamWaitValue32 of memory that is not the device's");
  stream->add([place, value, device = stream->device()] {
    const auto* const word = reinterpret_cast<std::uint32_t*>(place.bytes);
    while (static_cast<std::int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) {
      if (driver().devices.fault(device) != Code::success) return;
      std::this_thread::yield();
    }
    const auto end = std::chrono::steady_clock::now() + kLate;
    while (driver().hazards.has(Hazard::late_stream) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  return code;
}

Code memcpy_async(DevicePointer target, DevicePointer source, std::size_t bytes, CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuMemcpyAsync", handle, code);
  if (stream == nullptr) return code;
  const Place to = place_of(target, bytes);
  const Place from = place_of(source, bytes);
  stream->add([=] {
    if (to.allocation != nullptr && from.allocation != nullptr) {
      to.allocation->note_copied(target, *from.allocation, source, bytes);
    } else if (to.allocation != nullptr) {
      to.allocation->note_written(target, bytes);
    }
    std::memmove(to.bytes, from.bytes, bytes);
  });
  if (to.allocation == nullptr || from.allocation == nullptr) stream->synchronize();
  return code;
}

Code mem_alloc_managed(DevicePointer* memory, std::size_t bytes, unsigned int) {
  int device = 0;
  const Code code = driver().begin("cuMemAllocManaged", device);
  if (code == Code::success) *memory = reinterpret_cast<DevicePointer>(driver().allocate(Kind::managed, bytes, device));
  return code;
}

Code stream_begin_capture(CUstream_st* handle, CaptureMode) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamBeginCapture", handle, code);
  if (stream != nullptr) stream->captures = true;
  return code;
}

Code stream_end_capture(CUstream_st* handle, CUgraph_st** graph) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamEndCapture", handle, code);
  if (stream != nullptr) stream->captures = false;
  *graph = nullptr;
  return code;
}

}  // namespace qccl::device::fake
