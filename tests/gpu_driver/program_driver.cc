#include "gpu_driver/program_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "gpu_driver/watched_driver.h"

namespace qccl::testing {

ProgramDriver& ProgramDriver::get() {
  static auto* const only = new ProgramDriver;  // threads may outlive main()
  return *only;
}

ProgramDriver::ProgramDriver() : driver(WatchedDriver::get().real()) {
  using GetProcAddress = Code (*)(const char*, void**, int, std::uint64_t, int*);
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  const auto load = [&](const char* name, auto& function) {
    check(name, get(name, reinterpret_cast<void**>(&function), device::kDriverVersion, 0, nullptr));
  };
  load("cuStreamSynchronize", stream_synchronize);
  load("cuLaunchHostFunc", launch_host_function);
  load("cuMemcpyAsync", memcpy_async);
  load("cuMemAllocManaged", mem_alloc_managed);
  load("cuStreamBeginCapture", stream_begin_capture);
  load("cuStreamEndCapture", stream_end_capture);
  check("cuDeviceGetCount", driver.device_get_count(&device_count_));
}

CUctx_st* ProgramDriver::context_of(int device) {
  if (device >= device_count_) {
    const std::string message = std::string(kOnlyFake) + " have more GPUs than this machine";
    ADD_FAILURE() << message;
    throw std::runtime_error(message);
  }
  const std::lock_guard lock(mutex_);
  CUctx_st*& context = contexts_[device];
  if (context == nullptr) {
    int handle = 0;
    check("cuDeviceGet", driver.device_get(&handle, device));
    check("cuDevicePrimaryCtxRetain", driver.device_primary_ctx_retain(&context, handle));
  }
  return context;
}

}  // namespace qccl::testing
