#include "gpu_driver/watched_driver.h"

#include <algorithm>
#include <tuple>

#include "kernels/device/job_list.h"

namespace qccl::device {
// load_driver(), as the linker names it where the library calls it, and the library's own.
Result<Driver> watched_load_driver() asm("__wrap__ZN4qccl6device11load_driverEv");
Result<Driver> own_load_driver() asm("__real__ZN4qccl6device11load_driverEv");

Result<Driver> watched_load_driver() {
  QCCL_TRY(own_load_driver());  // in its words, where there is none
  return testing::WatchedDriver::get().watched();
}
}  // namespace qccl::device

namespace qccl::testing {
namespace {

using device::Driver;
using kernels::device::JobList;
using kernels::device::SliceJob;

// A function of the table, watched.
template <auto kFunction>
struct Watched;
template <class... Parameters, device::Code (*Driver::*kFunction)(Parameters...)>
struct Watched<kFunction> {
  static inline const char* name = nullptr;
  static inline int objects = 0;                        // that a call makes or ends
  static inline void (*note)(Parameters...) = nullptr;  // after a call that makes something, else before it

  static device::Code call(Parameters... parameters) {
    WatchedDriver& own = WatchedDriver::get();
    if (const auto ordered = own.take_failure(name)) return *ordered;
    if (note != nullptr && objects <= 0) note(parameters...);
    const device::Code code = (own.real().*kFunction)(parameters...);
    if (code != device::Code::success) return code;
    own.count_objects(objects);
    if (note != nullptr && objects > 0) note(parameters...);
    return code;
  }
};

template <auto kFunction>
void watch(Driver& driver, const char* name, int objects = 0, decltype(Watched<kFunction>::note) note = nullptr) {
  Watched<kFunction>::name = name;
  Watched<kFunction>::objects = objects;
  Watched<kFunction>::note = note;
  driver.*kFunction = &Watched<kFunction>::call;
}

// A failure on order has no name, as with the fake driver, so that tests find its number in messages.
device::Code error_name(device::Code code, const char** name) {
  if (!WatchedDriver::get().was_ordered(code)) return WatchedDriver::get().real().get_error_name(code, name);
  *name = nullptr;
  return device::Code::invalid_value;
}

}  // namespace

WatchedDriver& WatchedDriver::get() {
  static auto* const only = new WatchedDriver;  // threads may outlive main()
  return *only;
}

WatchedDriver::WatchedDriver() : real_(device::own_load_driver().take_or_throw()) {}

device::Driver WatchedDriver::watched() const {
  Driver driver = real_;
  watch<&Driver::stream_create_with_priority>(driver, "cuStreamCreateWithPriority", 1,
                                              [](CUstream_st** made, auto...) { get().add_stream(*made); });
  watch<&Driver::stream_destroy>(driver, "cuStreamDestroy", -1, [](CUstream_st* ended) { get().remove_stream(ended); });
  watch<&Driver::stream_is_capturing>(driver, "cuStreamIsCapturing");
  watch<&Driver::event_create>(driver, "cuEventCreate", 1);
  watch<&Driver::event_destroy>(driver, "cuEventDestroy", -1);
  watch<&Driver::event_record>(driver, "cuEventRecord");
  watch<&Driver::event_query>(driver, "cuEventQuery");
  watch<&Driver::mem_alloc>(driver, "cuMemAlloc", 1);
  watch<&Driver::mem_free>(driver, "cuMemFree", -1);
  watch<&Driver::mem_host_alloc>(driver, "cuMemHostAlloc", 1);
  watch<&Driver::mem_free_host>(driver, "cuMemFreeHost", -1);
  // Jobs name registered memory by its address on the device.
  watch<&Driver::mem_host_register>(driver, "cuMemHostRegister", 1, [](void* memory, std::size_t bytes, auto...) {
    get().add_registered(get().address_on_device(memory), bytes);
  });
  watch<&Driver::mem_host_unregister>(driver, "cuMemHostUnregister", -1,
                                      [](void* memory) { get().remove_registered(get().address_on_device(memory)); });
  watch<&Driver::memcpy_dtoh_async>(driver, "cuMemcpyDtoHAsync");
  watch<&Driver::memcpy_htod_async>(driver, "cuMemcpyHtoDAsync");
  watch<&Driver::module_load_data>(driver, "cuModuleLoadData", 1);
  watch<&Driver::module_unload>(driver, "cuModuleUnload", -1);
  watch<&Driver::launch_kernel>(driver, "cuLaunchKernel", 0,
                                [](auto... given) { get().note_launch(std::get<9>(std::tuple(given...))); });
  watch<&Driver::pointer_get_attributes>(driver, "cuPointerGetAttributes");
  driver.get_error_name = &error_name;
  return driver;
}

void WatchedDriver::fail(const std::string& function, Code code, int calls) {
  const std::lock_guard lock(mutex_);
  orders_.erase(function);
  if (code == Code::success) return;
  orders_[function] = {code, calls};
  if (code != Code::out_of_memory) ordered_.push_back(code);
}

std::optional<device::Code> WatchedDriver::take_failure(const std::string& function) {
  const std::lock_guard lock(mutex_);
  const auto found = orders_.find(function);
  if (found == orders_.end() || found->second.calls-- > 0) return std::nullopt;
  const Code code = found->second.code;
  orders_.erase(found);
  return code;
}

bool WatchedDriver::was_ordered(Code code) {
  const std::lock_guard lock(mutex_);
  return std::find(ordered_.begin(), ordered_.end(), code) != ordered_.end();
}

std::vector<CUstream_st*> WatchedDriver::streams() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

std::size_t WatchedDriver::launches() {
  const std::lock_guard lock(mutex_);
  return launches_;
}

device::fake::RegisteredUses WatchedDriver::registered_uses() {
  const std::lock_guard lock(mutex_);
  return uses_;
}

std::size_t WatchedDriver::live_objects() {
  const std::lock_guard lock(mutex_);
  return objects_;
}

void WatchedDriver::count_objects(int change) {
  const std::lock_guard lock(mutex_);
  objects_ += static_cast<std::size_t>(change);
}

void WatchedDriver::add_stream(CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void WatchedDriver::remove_stream(CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}

const void* WatchedDriver::address_on_device(void* registered) const {
  device::DevicePointer address = 0;
  static_cast<void>(real_.mem_host_get_device_pointer(&address, registered, 0));
  return reinterpret_cast<const void*>(address);
}

void WatchedDriver::add_registered(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  registered_[static_cast<const std::byte*>(memory)] = bytes;
}

void WatchedDriver::remove_registered(const void* memory) {
  const std::lock_guard lock(mutex_);
  registered_.erase(static_cast<const std::byte*>(memory));
}

bool WatchedDriver::is_registered(const void* memory) const {
  const auto* const place = static_cast<const std::byte*>(memory);
  const auto after = registered_.upper_bound(place);
  return after != registered_.begin() && place < std::prev(after)->first + std::prev(after)->second;
}

// Its parameter is the list of jobs, as in kernels.cc.
void WatchedDriver::note_launch(void* const* parameters) {
  const std::lock_guard lock(mutex_);
  ++launches_;
  const auto& list = *static_cast<const JobList*>(parameters[0]);
  for (const SliceJob* job = list.jobs; job != list.jobs + list.count; ++job) {
    for (std::size_t i = 0; i < job->source_count; ++i) uses_.read += is_registered(job->sources[i].data) ? 1 : 0;
    for (std::size_t i = 0; i < job->payload_count; ++i) uses_.written += is_registered(job->payloads[i]) ? 1 : 0;
  }
}

}  // namespace qccl::testing
