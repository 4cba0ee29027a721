#include "device/device.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace qccl::device {
namespace {

DevicePointer address_of(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

Status check(const Device& device, const char* function, Code code) {
  if (code == Code::success) return {};
  Failure failure = failure_of(device.driver(), function, code);
  failure.info().message = fmt::format("device {}: {}", device.index(), failure.info().message);
  return failure;
}

}  // namespace

// ---- Device

Device::ScopedContext::ScopedContext(const Device& device)
    : driver_(device.driver_), code_(driver_.ctx_push_current(device.context_)) {
  if (code_ == Code::success) static_cast<void>(driver_.thread_exchange_stream_capture_mode(&mode_));
}

Device::ScopedContext::~ScopedContext() {
  if (code_ != Code::success) return;
  CUctx_st* popped = nullptr;
  static_cast<void>(driver_.thread_exchange_stream_capture_mode(&mode_));
  static_cast<void>(driver_.ctx_pop_current(&popped));
}

Result<std::unique_ptr<Device>> Device::open(const Driver& driver, int index) {
  int handle = 0;
  if (const Code code = driver.device_get(&handle, index); code != Code::success) {
    return failure_of(driver, "cuDeviceGet", code);
  }
  CUctx_st* context = nullptr;
  if (const Code code = driver.device_primary_ctx_retain(&context, handle); code != Code::success) {
    return failure_of(driver, "cuDevicePrimaryCtxRetain", code);
  }
  return std::unique_ptr<Device>(new Device(driver, index, handle, context));
}

Device::~Device() { static_cast<void>(driver_.device_primary_ctx_release(handle_)); }

Result<MemoryPlace> Device::place_of(const void* memory) const {
  MemoryPlace place;
  unsigned int is_managed = 0;
  PointerAttribute attributes[] = {PointerAttribute::memory_type, PointerAttribute::is_managed,
                                   PointerAttribute::device_ordinal};
  void* values[] = {&place.type, &is_managed, &place.device};
  const Code code = call(&Driver::pointer_get_attributes, static_cast<unsigned int>(std::size(attributes)), +attributes,
                         +values, address_of(memory));
  QCCL_TRY(check(*this, "cuPointerGetAttributes", code));
  place.is_managed = is_managed != 0;
  return place;
}

Result<std::size_t> Device::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  QCCL_TRY(check(*this, "cuMemGetInfo", call(&Driver::mem_get_info, &free, &total)));
  return free;
}

// ---- Runtime

Result<std::unique_ptr<Runtime>> Runtime::open() {
  QCCL_ASSIGN(const Driver driver, load_driver());
  int devices = 0;
  if (const Code code = driver.device_get_count(&devices); code != Code::success) {
    return failure_of(driver, "cuDeviceGetCount", code);
  }
  return std::unique_ptr<Runtime>(new Runtime(driver, devices));
}

int Runtime::driver_number() const {
  int version = 0;
  static_cast<void>(driver_.driver_get_version(&version));
  return version;
}

std::string Runtime::driver_version() const {
  const int version = driver_number();
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<Traits> Runtime::traits(int index) const {
  int handle = 0;
  if (const Code code = driver_.device_get(&handle, index); code != Code::success) {
    return failure_of(driver_, "cuDeviceGet", code);
  }
  Traits traits;
  std::array<char, 128> name{};
  const std::pair<const char*, Code> results[] = {
      {"cuDeviceGetName", driver_.device_get_name(name.data(), static_cast<int>(name.size()) - 1, handle)},
      {"cuDeviceGetAttribute",
       driver_.device_get_attribute(&traits.compute_major, DeviceAttribute::compute_major, handle)},
      {"cuDeviceGetAttribute",
       driver_.device_get_attribute(&traits.compute_minor, DeviceAttribute::compute_minor, handle)},
      {"cuDeviceGetAttribute",
       driver_.device_get_attribute(&traits.multiprocessors, DeviceAttribute::multiprocessors, handle)},
      {"cuDeviceTotalMem", driver_.device_total_mem(&traits.memory_bytes, handle)}};
  for (const auto& [function, code] : results) {
    if (code != Code::success) return failure_of(driver_, function, code);
  }
  traits.name = name.data();
  return traits;
}

// Handles of devices are their indices, in every release of the driver, but nothing says so.
std::optional<int> Runtime::current() const {
  int current = 0;
  if (driver_.ctx_get_device(&current) != Code::success) return std::nullopt;
  for (int index = 0; index < device_count(); ++index) {
    int handle = 0;
    if (driver_.device_get(&handle, index) == Code::success && handle == current) return index;
  }
  return std::nullopt;
}

Result<Device*> Runtime::device(int index) {
  if (index < 0 || index >= device_count()) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("there is no device {}: this process sees {}", index, device_count()));
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Device>& device = devices_[static_cast<std::size_t>(index)];
  if (device == nullptr) {
    QCCL_ASSIGN(device, Device::open(driver_, index));
  }
  return device.get();
}

// ---- Event

Result<std::unique_ptr<Event>> Event::create(const Device& device) {
  CUevent_st* handle = nullptr;
  QCCL_TRY(check(device, "cuEventCreate", device.call(&Driver::event_create, &handle, kEventDisableTiming)));
  return std::unique_ptr<Event>(new Event(device, handle));
}

Event::~Event() { static_cast<void>(device_.call(&Driver::event_destroy, handle_)); }

Status Event::record(CUstream_st* stream) {
  return check(device_, "cuEventRecord", device_.call(&Driver::event_record, handle_, stream));
}

Result<bool> Event::has_happened() const {
  const Code code = device_.call(&Driver::event_query, handle_);
  if (code == Code::not_ready) return false;
  QCCL_TRY(check(device_, "cuEventQuery", code));
  return true;
}

// ---- Stream

Result<std::unique_ptr<Stream>> Stream::create(const Device& device) {
  int least = 0;
  int greatest = 0;
  QCCL_TRY(check(device, "cuCtxGetStreamPriorityRange",
                 device.call(&Driver::ctx_get_stream_priority_range, &least, &greatest)));
  CUstream_st* handle = nullptr;
  QCCL_TRY(check(device, "cuStreamCreateWithPriority",
                 device.call(&Driver::stream_create_with_priority, &handle, kStreamNonBlocking, greatest)));
  return std::unique_ptr<Stream>(new Stream(device, handle));
}

Stream::~Stream() { static_cast<void>(device_.call(&Driver::stream_destroy, handle_)); }

Status Stream::copy_to_host(void* target, const void* source, std::size_t bytes) {
  return check(device_, "cuMemcpyDtoHAsync",
               device_.call(&Driver::memcpy_dtoh_async, target, address_of(source), bytes, handle_));
}

Status Stream::copy_to_device(void* target, const void* source, std::size_t bytes) {
  return check(device_, "cuMemcpyHtoDAsync",
               device_.call(&Driver::memcpy_htod_async, address_of(target), source, bytes, handle_));
}

Status Stream::copy_on_device(void* target, const void* source, std::size_t bytes) {
  return check(device_, "cuMemcpyDtoDAsync",
               device_.call(&Driver::memcpy_dtod_async, address_of(target), address_of(source), bytes, handle_));
}

Status Stream::fill(void* target, std::byte value, std::size_t bytes) {
  return check(device_, "cuMemsetD8Async",
               device_.call(&Driver::memset_d8_async, address_of(target), std::to_integer<unsigned char>(value), bytes,
                            handle_));
}

// ---- memory

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(const Device& device, std::size_t bytes) {
  void* memory = nullptr;
  QCCL_TRY(check(device, "cuMemHostAlloc", device.call(&Driver::mem_host_alloc, &memory, bytes, kHostAllocPortable)));
  return std::unique_ptr<PinnedMemory>(new PinnedMemory(device, static_cast<std::byte*>(memory)));
}

PinnedMemory::~PinnedMemory() { static_cast<void>(device_.call(&Driver::mem_free_host, data_)); }

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::allocate(const Device& device, std::size_t bytes) {
  DevicePointer memory = 0;
  QCCL_TRY(check(device, "cuMemAlloc", device.call(&Driver::mem_alloc, &memory, bytes)));
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(device, reinterpret_cast<std::byte*>(memory)));
}

DeviceMemory::~DeviceMemory() { static_cast<void>(device_.call(&Driver::mem_free, address_of(data_))); }

Result<std::unique_ptr<Registration>> Registration::make(const Device& device, void* memory, std::size_t bytes) {
  const Code code = device.call(&Driver::mem_host_register, memory, bytes, kHostRegisterMapped);
  QCCL_TRY(check(device, "cuMemHostRegister", code));
  return std::unique_ptr<Registration>(new Registration(device, memory));
}

Result<std::byte*> Registration::address_on(const Device& device) const {
  DevicePointer address = 0;
  QCCL_TRY(check(device, "cuMemHostGetDevicePointer",
                 device.call(&Driver::mem_host_get_device_pointer, &address, memory_, 0u)));
  return reinterpret_cast<std::byte*>(address);
}

Registration::~Registration() { static_cast<void>(device_.call(&Driver::mem_host_unregister, memory_)); }

Status check_not_capturing(const Device& device, CUstream_st* stream) {
  CaptureStatus status = CaptureStatus::none;
  const Code code = device.call(&Driver::stream_is_capturing, stream, &status);
  if (code != Code::stream_capture_implicit) {
    QCCL_TRY(check(device, "cuStreamIsCapturing", code));
    if (status == CaptureStatus::none) return {};
  }
  return Failure(ErrorKind::unsupported,
                 "a call can't be part of a CUDA graph, because host threads move its data; make it outside of the "
                 "capture (torch.cuda.graph())");
}

}  // namespace qccl::device
