#include <dlfcn.h>
#include <fmt/format.h>

#include "device/driver.h"

namespace qccl::device {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kRemedy = "install driver 525 or later";

using GetProcAddress = Code (*)(const char* symbol, void** function, int version, std::uint64_t flags, int* status);

struct Symbol {
  const char* name;
  void** function;
};

template <class Function>
Symbol symbol(const char* name, Function*& function) {
  return {name, reinterpret_cast<void**>(&function)};
}

Failure unsupported(const std::string& what) {
  return Failure(ErrorKind::unsupported, fmt::format("device memory needs NVIDIA's driver: {}", what));
}

Status load_functions(GetProcAddress get, Driver& driver) {
  const Symbol symbols[] = {
      symbol("cuInit", driver.init),
      symbol("cuDriverGetVersion", driver.driver_get_version),
      symbol("cuGetErrorName", driver.get_error_name),
      symbol("cuGetErrorString", driver.get_error_string),
      symbol("cuDeviceGetCount", driver.device_get_count),
      symbol("cuDeviceGet", driver.device_get),
      symbol("cuDeviceGetName", driver.device_get_name),
      symbol("cuDeviceGetAttribute", driver.device_get_attribute),
      symbol("cuDeviceTotalMem", driver.device_total_mem),
      symbol("cuDevicePrimaryCtxRetain", driver.device_primary_ctx_retain),
      symbol("cuDevicePrimaryCtxRelease", driver.device_primary_ctx_release),
      symbol("cuCtxPushCurrent", driver.ctx_push_current),
      symbol("cuCtxPopCurrent", driver.ctx_pop_current),
      symbol("cuCtxGetDevice", driver.ctx_get_device),
      symbol("cuCtxGetStreamPriorityRange", driver.ctx_get_stream_priority_range),
      symbol("cuThreadExchangeStreamCaptureMode", driver.thread_exchange_stream_capture_mode),
      symbol("cuStreamCreateWithPriority", driver.stream_create_with_priority),
      symbol("cuStreamDestroy", driver.stream_destroy),
      symbol("cuStreamGetId", driver.stream_get_id),
      symbol("cuStreamIsCapturing", driver.stream_is_capturing),
      symbol("cuStreamWaitValue32", driver.stream_wait_value),
      symbol("cuEventCreate", driver.event_create),
      symbol("cuEventDestroy", driver.event_destroy),
      symbol("cuEventRecord", driver.event_record),
      symbol("cuEventQuery", driver.event_query),
      symbol("cuMemAlloc", driver.mem_alloc),
      symbol("cuMemFree", driver.mem_free),
      symbol("cuMemGetInfo", driver.mem_get_info),
      symbol("cuMemHostRegister", driver.mem_host_register),
      symbol("cuMemHostUnregister", driver.mem_host_unregister),
      symbol("cuMemHostGetDevicePointer", driver.mem_host_get_device_pointer),
      symbol("cuMemHostAlloc", driver.mem_host_alloc),
      symbol("cuMemFreeHost", driver.mem_free_host),
      symbol("cuMemcpyDtoHAsync", driver.memcpy_dtoh_async),
      symbol("cuMemcpyHtoDAsync", driver.memcpy_htod_async),
      symbol("cuMemcpyDtoDAsync", driver.memcpy_dtod_async),
      symbol("cuMemsetD8Async", driver.memset_d8_async),
      symbol("cuModuleLoadData", driver.module_load_data),
      symbol("cuModuleUnload", driver.module_unload),
      symbol("cuModuleGetFunction", driver.module_get_function),
      symbol("cuLaunchKernel", driver.launch_kernel),
      symbol("cuPointerGetAttributes", driver.pointer_get_attributes),
  };
  for (const Symbol& each : symbols) {
    const Code code = get(each.name, each.function, kDriverVersion, 0, nullptr);
    if (code == Code::success && *each.function != nullptr) continue;
    return unsupported(fmt::format("{} has no {}; {}", kLibrary, each.name, kRemedy));
  }
  return {};
}

}  // namespace

Result<Driver> load_driver() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unsupported(fmt::format("{}; {}", ::dlerror(), kRemedy));
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) return unsupported(fmt::format("{}; {}", ::dlerror(), kRemedy));
  Driver driver{};
  QCCL_TRY(load_functions(get, driver));
  const Code code = driver.init(0);
  if (code == Code::success) return driver;
  return unsupported(failure_of(driver, "cuInit", code).info().message + "; see whether nvidia-smi lists a GPU");
}

Failure failure_of(const Driver& driver, const char* function, Code code) {
  const char* name = nullptr;
  const char* text = nullptr;
  static_cast<void>(driver.get_error_name(code, &name));
  static_cast<void>(driver.get_error_string(code, &text));
  const std::string what = name == nullptr ? fmt::format("error {}", static_cast<int>(code)) : name;
  const std::string message =
      fmt::format("{}: {}{}", function, what, text == nullptr ? "" : fmt::format(" ({})", text));
  switch (code) {
    case Code::out_of_memory: return Failure(ErrorKind::resource_exhausted, message);
    case Code::invalid_value:
    case Code::invalid_device:
    case Code::invalid_context:
    case Code::invalid_handle: return Failure(ErrorKind::invalid_argument, message);
    default: return Failure(ErrorKind::aborted, message);
  }
}

}  // namespace qccl::device
