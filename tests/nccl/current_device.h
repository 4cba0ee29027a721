// The device of a thread, as cudaSetDevice() sets it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "support/fake_cuda/fake_cuda.h"

extern "C" qccl::device::Code cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                                                  int* status);

namespace qccl::testing {

// That of the thread's CurrentDevice; 0 without one.
inline int& device_of_thread() {
  static thread_local int device = 0;
  return device;
}

// Makes the device's primary context current in this thread.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    CUctx_st* context = nullptr;
    function<device::Code(CUctx_st**, int)>("cuDevicePrimaryCtxRetain")(&context, device);
    device_of_thread() = device;
    function<device::Code(CUctx_st*)>("cuCtxPushCurrent")(context);
  }
  ~CurrentDevice() {
    CUctx_st* context = nullptr;
    function<device::Code(CUctx_st**)>("cuCtxPopCurrent")(&context);
    device_of_thread() = 0;
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  template <class Signature>
  static Signature* function(const char* name) {
    void* found = nullptr;
    EXPECT_EQ(cuGetProcAddress_v2(name, &found, device::kDriverVersion, 0, nullptr), device::Code::success) << name;
    return reinterpret_cast<Signature*>(found);
  }
};

}  // namespace qccl::testing
