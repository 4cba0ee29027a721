#include "support/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/fake_driver.h"
#include "support/fake_cuda/fake_kernels.h"
#include "support/fake_cuda/fake_program.h"

namespace qccl::device::fake {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{16} << 30;  // of a device

bool is_host_memory(Kind kind) { return kind == Kind::pinned || kind == Kind::registered; }

const void* pointer(DevicePointer address) { return reinterpret_cast<const void*>(address); }

// ---- the driver's functions

Code init(unsigned int) { return driver().faults.next_result("cuInit"); }

Code driver_get_version(int* version) {
  *version = driver().modules.version();
  return Code::success;
}

Code get_error_name(Code code, const char** name) {
  switch (code) {
    case Code::invalid_value: *name = "CUDA_ERROR_INVALID_VALUE"; return Code::success;
    case Code::out_of_memory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return Code::success;
    case Code::already_registered: *name = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"; return Code::success;
    case Code::no_device: *name = "CUDA_ERROR_NO_DEVICE"; return Code::success;
    default: return Code::invalid_value;
  }
}

Code get_error_string(Code code, const char** text) {
  if (code != Code::no_device) return Code::invalid_value;
  *text = "no CUDA-capable device is detected";
  return Code::success;
}

Code device_get_count(int* count) {
  *count = driver().devices.device_count();
  return Code::success;
}

Code device_get(int* device, int index) {
  if (index < 0 || index >= driver().devices.device_count()) return Code::invalid_device;
  *device = index;
  return Code::success;
}

Code device_get_name(char* name, int length, int device) {
  std::strncpy(name, ("Fake device " + std::to_string(device)).c_str(), static_cast<std::size_t>(length));
  return Code::success;
}

Code device_get_attribute(int* value, DeviceAttribute attribute, int) {
  switch (attribute) {
    case DeviceAttribute::multiprocessors: *value = 4; return Code::success;
    case DeviceAttribute::compute_major: *value = 9; return Code::success;
    case DeviceAttribute::compute_minor: *value = 0; return Code::success;
  }
  return Code::invalid_value;
}

Code device_total_mem(std::size_t* bytes, int) {
  *bytes = kMemoryBytes;
  return Code::success;
}

Code device_primary_ctx_retain(CUctx_st** context, int device) {
  *context = driver().devices.primary(device);
  return Code::success;
}

Code device_primary_ctx_release(int) { return Code::success; }
Code ctx_push_current(CUctx_st* context) { return driver().push(context); }
Code ctx_pop_current(CUctx_st** context) { return driver().pop(context); }

Code ctx_get_device(int* device) { return driver().current_device(*device); }

Code ctx_get_stream_priority_range(int* least, int* greatest) {
  int device = 0;
  *least = 0;
  *greatest = -5;
  return driver().begin("cuCtxGetStreamPriorityRange", device);
}

Code thread_exchange_stream_capture_mode(CaptureMode* mode) {
  int device = 0;
  *mode = *mode == CaptureMode::relaxed ? CaptureMode::global : CaptureMode::relaxed;
  return driver().begin("cuThreadExchangeStreamCaptureMode", device);
}

Code stream_create_with_priority(CUstream_st** stream, unsigned int, int) {
  int device = 0;
  const Code code = driver().begin("cuStreamCreateWithPriority", device);
  if (code == Code::success) *stream = driver().make_stream(device, true);
  return code;
}

Code stream_destroy(CUstream_st* stream) {
  return driver().give_back("cuStreamDestroy", "no stream", [&](int) { return driver().destroy(stream); });
}

Code stream_get_id(CUstream_st* handle, std::uint64_t* id) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamGetId", handle, code);
  if (stream != nullptr) *id = stream->id();
  return code;
}

// The default stream waits for the others, which a capture forbids.
Code stream_is_capturing(CUstream_st* handle, CaptureStatus* status) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuStreamIsCapturing", handle, code);
  if (stream == nullptr) return code;
  if (driver().devices.is_default_stream(stream) && driver().any_captures(stream->device())) {
    return Code::stream_capture_implicit;
  }
  *status = stream->captures ? CaptureStatus::active : CaptureStatus::none;
  return code;
}

Code event_create(CUevent_st** event, unsigned int) {
  int device = 0;
  const Code code = driver().begin("cuEventCreate", device);
  if (code == Code::success) *event = driver().make_event();
  return code;
}

Code event_destroy(CUevent_st* event) {
  return driver().give_back("cuEventDestroy", "no event", [&](int) { return driver().destroy(event); });
}

Code event_record(CUevent_st* event, CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuEventRecord", handle, code);
  if (stream == nullptr) return code;
  if (!driver().is_alive(event)) return driver().faults.misuse("cuEventRecord of no event");
  if (stream->captures) return driver().faults.misuse("cuEventRecord in a captured stream");
  event->happened = std::make_shared<std::atomic<bool>>(false);
  stream->add([happened = event->happened] { happened->store(true, std::memory_order_release); });
  return Code::success;
}

Code event_query(CUevent_st* event) {
  int device = 0;
  const Code code = driver().begin("cuEventQuery", device);
  if (code != Code::success) return code;
  if (!driver().is_alive(event)) return driver().faults.misuse("cuEventQuery of no event");
  const bool happened = event->happened == nullptr || event->happened->load(std::memory_order_acquire);
  return happened ? Code::success : Code::not_ready;
}

Code mem_alloc(DevicePointer* memory, std::size_t bytes) {
  int device = 0;
  const Code code = driver().begin("cuMemAlloc", device);
  if (code != Code::success) return code;
  if (bytes == 0) return Code::invalid_value;
  if (bytes > kMemoryBytes - driver().allocated_bytes(device)) return Code::out_of_memory;
  *memory = reinterpret_cast<DevicePointer>(driver().allocate(Kind::device, bytes, device));
  return Code::success;
}

Code mem_free(DevicePointer memory) {
  return driver().give_back("cuMemFree", "other memory", [&](int device) {
    driver().wait_to_free(device);
    const auto found = driver().find(pointer(memory), 0);
    const bool is_devices = found != nullptr && (found->kind == Kind::device || found->kind == Kind::managed);
    return is_devices && driver().free(reinterpret_cast<void*>(memory));
  });
}

Code mem_get_info(std::size_t* free, std::size_t* total) {
  int device = 0;
  const Code code = driver().begin("cuMemGetInfo", device);
  *total = kMemoryBytes;
  *free = kMemoryBytes - driver().allocated_bytes(device);
  return code;
}

Code mem_host_register(void* memory, std::size_t bytes, unsigned int) {
  int device = 0;
  const Code code = driver().begin("cuMemHostRegister", device);
  if (code != Code::success) return code;
  return driver().add_registered(memory, bytes, device) ? Code::success : Code::already_registered;
}

Code mem_host_unregister(void* memory) {
  return driver().give_back("cuMemHostUnregister", "other memory", [&](int device) {
    driver().wait_to_free(device);
    const auto found = driver().find_on_host(memory, 0);
    return found != nullptr && found->kind == Kind::registered && driver().free(memory);
  });
}

Code mem_host_get_device_pointer(DevicePointer* address, void* memory, unsigned int) {
  int device = 0;
  const Code code = driver().begin("cuMemHostGetDevicePointer", device);
  if (code != Code::success) return code;
  const auto found = driver().find_on_host(memory, 1);
  if (found == nullptr || !is_host_memory(found->kind)) return Code::invalid_value;
  *address = reinterpret_cast<DevicePointer>(found->address + (static_cast<std::byte*>(memory) - found->storage));
  return Code::success;
}

Code mem_host_alloc(void** memory, std::size_t bytes, unsigned int) {
  int device = 0;
  const Code code = driver().begin("cuMemHostAlloc", device);
  if (code == Code::success) *memory = driver().allocate(Kind::pinned, bytes, device);
  return code;
}

Code mem_free_host(void* memory) {
  return driver().give_back("cuMemFreeHost", "other memory", [&](int device) {
    driver().wait_to_free(device);
    return driver().free(memory);
  });
}

// A copy between device memory and the host's, which may be pageable.
struct Copy {
  const void* device_memory;
  std::byte* host_memory;
  std::size_t bytes;
  bool to_host;
};

// Pageable memory is copied before the function returns.
Code copy_async(const char* function, const Copy& copy, CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable(function, handle, code);
  if (stream == nullptr) return code;
  auto device_side = driver().find(copy.device_memory, copy.bytes);
  if (device_side == nullptr || device_side->kind != Kind::device) {
    return driver().faults.misuse(std::string(function) + " with memory that is not the device's");
  }
  auto host_side = driver().find_on_host(copy.host_memory, copy.bytes);
  std::byte* const stored =
      device_side->storage + (static_cast<const std::byte*>(copy.device_memory) - device_side->address);
  stream->add([copy, stored, device_side, host_side] {
    const auto address = reinterpret_cast<DevicePointer>(copy.device_memory);
    if (!copy.to_host) device_side->note_written(address, copy.bytes);
    std::memcpy(copy.to_host ? copy.host_memory : stored, copy.to_host ? stored : copy.host_memory, copy.bytes);
  });
  if (host_side == nullptr) stream->synchronize();
  return Code::success;
}

Code memcpy_dtoh_async(void* target, DevicePointer source, std::size_t bytes, CUstream_st* stream) {
  return copy_async("cuMemcpyDtoHAsync", {pointer(source), static_cast<std::byte*>(target), bytes, true}, stream);
}

Code memcpy_htod_async(DevicePointer target, const void* source, std::size_t bytes, CUstream_st* stream) {
  auto* const host = const_cast<std::byte*>(static_cast<const std::byte*>(source));
  return copy_async("cuMemcpyHtoDAsync", {pointer(target), host, bytes, false}, stream);
}

Code memcpy_dtod_async(DevicePointer target, DevicePointer source, std::size_t bytes, CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuMemcpyDtoDAsync", handle, code);
  if (stream == nullptr) return code;
  const auto to = driver().find(pointer(target), bytes);
  const auto from = driver().find(pointer(source), bytes);
  if (to == nullptr || from == nullptr)
    return driver().faults.misuse("cuMemcpyDtoDAsync with memory that is not the device's");
  stream->add([=] {
    to->note_copied(target, *from, source, bytes);
    std::memmove(to->storage_of(target), from->storage_of(source), bytes);
  });
  return Code::success;
}

Code memset_d8_async(DevicePointer target, unsigned char value, std::size_t bytes, CUstream_st* handle) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuMemsetD8Async", handle, code);
  if (stream == nullptr) return code;
  const auto memory = driver().find(pointer(target), bytes);
  if (memory == nullptr) return driver().faults.misuse("cuMemsetD8Async with memory that is not the device's");
  stream->add([=] {
    memory->note_written(target, bytes);
    std::memset(memory->storage_of(target), value, bytes);
  });
  return Code::success;
}

Code pointer_get_attributes(unsigned int count, PointerAttribute* attributes, void** values, DevicePointer memory) {
  int device = 0;
  if (const Code code = driver().begin("cuPointerGetAttributes", device); code != Code::success) return code;
  auto found = driver().find(pointer(memory), 1);
  if (found == nullptr) found = driver().find_on_host(pointer(memory), 1);
  for (unsigned int i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case PointerAttribute::memory_type: {
        const MemoryType known =
            found != nullptr && is_host_memory(found->kind) ? MemoryType::host : MemoryType::device;
        *static_cast<MemoryType*>(values[i]) = found == nullptr ? MemoryType::unknown : known;
        break;
      }
      case PointerAttribute::is_managed:
        *static_cast<unsigned int*>(values[i]) = found != nullptr && found->kind == Kind::managed ? 1 : 0;
        break;
      case PointerAttribute::device_ordinal: *static_cast<int*>(values[i]) = found ? found->device : -2; break;
    }
  }
  return Code::success;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

// By the names that cuGetProcAddress() takes.
const std::map<std::string, void*>& functions() {
  static const auto* const kFunctions = new std::map<std::string, void*>{
      {"cuInit", address_of(init)},
      {"cuDriverGetVersion", address_of(driver_get_version)},
      {"cuGetErrorName", address_of(get_error_name)},
      {"cuGetErrorString", address_of(get_error_string)},
      {"cuDeviceGetCount", address_of(device_get_count)},
      {"cuDeviceGet", address_of(device_get)},
      {"cuDeviceGetName", address_of(device_get_name)},
      {"cuDeviceGetAttribute", address_of(device_get_attribute)},
      {"cuDeviceTotalMem", address_of(device_total_mem)},
      {"cuDevicePrimaryCtxRetain", address_of(device_primary_ctx_retain)},
      {"cuDevicePrimaryCtxRelease", address_of(device_primary_ctx_release)},
      {"cuCtxPushCurrent", address_of(ctx_push_current)},
      {"cuCtxPopCurrent", address_of(ctx_pop_current)},
      {"cuCtxGetDevice", address_of(ctx_get_device)},
      {"cuCtxGetStreamPriorityRange", address_of(ctx_get_stream_priority_range)},
      {"cuThreadExchangeStreamCaptureMode", address_of(thread_exchange_stream_capture_mode)},
      {"cuStreamCreateWithPriority", address_of(stream_create_with_priority)},
      {"cuStreamDestroy", address_of(stream_destroy)},
      {"cuStreamGetId", address_of(stream_get_id)},
      {"cuStreamIsCapturing", address_of(stream_is_capturing)},
      {"cuEventCreate", address_of(event_create)},
      {"cuEventDestroy", address_of(event_destroy)},
      {"cuEventRecord", address_of(event_record)},
      {"cuEventQuery", address_of(event_query)},
      {"cuMemAlloc", address_of(mem_alloc)},
      {"cuMemFree", address_of(mem_free)},
      {"cuMemGetInfo", address_of(mem_get_info)},
      {"cuMemHostRegister", address_of(mem_host_register)},
      {"cuMemHostUnregister", address_of(mem_host_unregister)},
      {"cuMemHostGetDevicePointer", address_of(mem_host_get_device_pointer)},
      {"cuMemHostAlloc", address_of(mem_host_alloc)},
      {"cuMemFreeHost", address_of(mem_free_host)},
      {"cuMemcpyDtoHAsync", address_of(memcpy_dtoh_async)},
      {"cuMemcpyHtoDAsync", address_of(memcpy_htod_async)},
      {"cuMemcpyDtoDAsync", address_of(memcpy_dtod_async)},
      {"cuModuleLoadData", address_of(module_load_data)},
      {"cuModuleUnload", address_of(module_unload)},
      {"cuModuleGetFunction", address_of(module_get_function)},
      {"cuLaunchKernel", address_of(launch_kernel)},
      {"cuPointerGetAttributes", address_of(pointer_get_attributes)},
      {"cuStreamSynchronize", address_of(stream_synchronize)},
      {"cuLaunchHostFunc", address_of(launch_host_function)},
      {"cuStreamWaitValue32", address_of(stream_wait_value)},
      {"cuMemcpyAsync", address_of(memcpy_async)},
      {"cuMemsetD8Async", address_of(memset_d8_async)},
      {"cuMemAllocManaged", address_of(mem_alloc_managed)},
      {"cuStreamBeginCapture", address_of(stream_begin_capture)},
      {"cuStreamEndCapture", address_of(stream_end_capture)},
  };
  return *kFunctions;
}

}  // namespace

// ---- for tests

void set_delays(std::uint64_t seed, std::chrono::microseconds longest) { driver().set_delays(seed, longest); }
void fail(const std::string& function, Code code, int calls) { driver().faults.order_failure(function, code, calls); }
std::vector<std::string> take_misuses() { return driver().faults.take_misuses(); }
void set_driver_version(int version) { driver().modules.set_version(version); }
std::vector<const void*> loaded_images() { return driver().modules.loaded_images(); }
std::size_t launches() { return driver().modules.launches(); }
RegisteredUses registered_uses() { return driver().modules.registered_uses(); }
void set_queues(std::size_t queues) { driver().queues.set_queues(queues); }
void fault(int device, Code code) { driver().devices.set_fault(device, code); }
void repair(int device) {
  driver().wait_to_free(device);  // for streams to drop what they have
  driver().devices.set_fault(device, Code::success);
}
void set_hazard(Hazard hazard, bool on) { driver().hazards.set_hazard(hazard, on); }
std::size_t live_objects() { return driver().live_objects(); }
void* allocate(Kind kind, std::size_t bytes, int device) { return driver().allocate(kind, bytes, device); }
void free(void* memory) {
  if (!driver().free(memory)) static_cast<void>(driver().faults.misuse("the test frees memory that is not the fake's"));
}

void set_device_count(int devices) { driver().devices.set_device_count(devices); }
int device_count() { return driver().devices.device_count(); }

bool is_pinned(const void* memory) {
  const auto found = driver().find(memory, 1);
  return found != nullptr && found->kind == Kind::pinned;
}

CUstream_st* default_stream(int device) { return driver().devices.default_stream(device).get(); }
CUstream_st* make_stream(int device) { return driver().make_stream(device, false); }
std::vector<CUstream_st*> library_streams() { return driver().library_streams(); }
void destroy(CUstream_st* stream) { static_cast<void>(driver().destroy(stream)); }
void hold(CUstream_st* stream) { driver().stream(stream)->set_held(true); }
void release(CUstream_st* stream) { driver().stream(stream)->set_held(false); }
void capture(CUstream_st* stream, bool captures) { driver().stream(stream)->captures = captures; }

void enqueue(CUstream_st* stream, std::function<void()> work) { driver().stream(stream)->add(std::move(work)); }

void launch(CUstream_st* stream, void* memory, std::function<void(std::byte*)> work) {
  const auto address = reinterpret_cast<DevicePointer>(memory);
  driver().stream(stream)->add([address, allocation = driver().find(memory, 0), work = std::move(work)] {
    allocation->note_written(address, allocation->bytes - allocation->offset_of(address));
    work(allocation->storage_of(address));
  });
}

void write(CUstream_st* stream, void* memory, const void* source, std::size_t bytes) {
  const auto address = reinterpret_cast<DevicePointer>(memory);
  const auto* const first = static_cast<const std::byte*>(source);
  driver().stream(stream)->add(
      [address, allocation = driver().find(memory, bytes), copied = std::vector<std::byte>(first, first + bytes)] {
        allocation->note_written(address, copied.size());
        std::copy(copied.begin(), copied.end(), allocation->storage_of(address));
      });
}

void read(CUstream_st* stream, const void* memory, void* target, std::size_t bytes) {
  const auto address = reinterpret_cast<DevicePointer>(memory);
  driver().stream(stream)->add([=, allocation = driver().find(memory, bytes)] {
    std::copy_n(allocation->storage_of(address), bytes, static_cast<std::byte*>(target));
  });
  synchronize(stream);
}

void synchronize(CUstream_st* stream) { driver().stream(stream)->synchronize(); }

}  // namespace qccl::device::fake

extern "C" qccl::device::Code cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t,
                                                  int*) {
  using namespace qccl::device;
  const auto found = fake::functions().find(symbol);
  if (found == fake::functions().end() || version < kDriverVersion) return Code::not_found;
  *function = found->second;
  return Code::success;
}
