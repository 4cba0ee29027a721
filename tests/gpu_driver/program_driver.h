// The functions of CUDA's driver that a test's program calls and the library does not, and contexts for them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/driver.h"

struct CUgraph_st;

namespace qccl::testing {

// A test asks for something that only the fake driver does. Such a test is left out (main.cc).
inline constexpr const char* kOnlyFake = "only the fake driver can";

// One a process. Thread-safe. Functions throw std::runtime_error where the driver fails.
class ProgramDriver {
 public:
  using Code = device::Code;

  static ProgramDriver& get();

  int device_count() const { return device_count_; }
  // Calls a function of the driver with the device's context.
  template <class... Parameters, class... Arguments>
  void call(const char* name, int device, Code (*function)(Parameters...), Arguments... arguments) {
    const Context context(*this, device);
    check(name, function(arguments...));
  }
  void check(const char* name, Code code) const {
    if (code != Code::success) throw std::runtime_error(failure_of(driver, name, code).info().message);
  }

  device::Driver driver{};
  Code (*stream_synchronize)(CUstream_st* stream) = nullptr;
  Code (*launch_host_function)(CUstream_st* stream, void (*function)(void*), void* data) = nullptr;
  Code (*memcpy_async)(device::DevicePointer target, device::DevicePointer source, std::size_t bytes,
                       CUstream_st* stream) = nullptr;
  Code (*mem_alloc_managed)(device::DevicePointer* memory, std::size_t bytes, unsigned int flags) = nullptr;
  Code (*stream_begin_capture)(CUstream_st* stream, device::CaptureMode mode) = nullptr;
  Code (*stream_end_capture)(CUstream_st* stream, CUgraph_st** graph) = nullptr;

 private:
  class Context {
   public:
    Context(ProgramDriver& own, int device) : own_(own) {
      own.check("cuCtxPushCurrent", own.driver.ctx_push_current(own.context_of(device)));
    }
    ~Context() {
      CUctx_st* popped = nullptr;
      static_cast<void>(own_.driver.ctx_pop_current(&popped));
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

   private:
    ProgramDriver& own_;
  };

  ProgramDriver();
  CUctx_st* context_of(int device);

  int device_count_ = 0;
  std::mutex mutex_;
  std::map<int, CUctx_st*> contexts_;  // guarded by mutex_; never released
};

}  // namespace qccl::testing
