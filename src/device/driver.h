// The part of CUDA's driver API that the library calls. It is declared here and loaded at run time (cuda.cc), so that
// neither CUDA's headers nor its libraries are needed to build, and a machine without a GPU runs the same program.
//
// Names and values are those of cuda.h, version 12.0; see NVIDIA's "CUDA Driver API".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

namespace qccl::device {

// CUresult: those that the library tells apart.
enum class Code : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  unsupported_ptx_version = 222,
  jit_compilation_disabled = 223,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  already_registered = 712,
  stream_capture_implicit = 906,
};

// CUdeviceptr
using DevicePointer = std::uint64_t;

// CUpointer_attribute
enum class PointerAttribute : int { memory_type = 2, is_managed = 8, device_ordinal = 9 };
// CUmemorytype; 0: the driver does not know the memory, so it is the program's own.
enum class MemoryType : unsigned int { unknown = 0, host = 1, device = 2 };
// CUdevice_attribute
enum class DeviceAttribute : int { multiprocessors = 16, compute_major = 75, compute_minor = 76 };
// CUstreamCaptureMode
enum class CaptureMode : int { global = 0, thread_local_only = 1, relaxed = 2 };
// CUstreamCaptureStatus
enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };

inline constexpr unsigned int kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned int kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned int kHostAllocPortable = 1;   // CU_MEMHOSTALLOC_PORTABLE
inline constexpr unsigned int kHostRegisterMapped = 3;  // CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned int kStreamWaitAtLeast = 0;   // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr int kDriverVersion = 12000;            // the oldest driver: 525

// The functions, as cuGetProcAddress() gives them. A value; the library behind it stays loaded.
struct Driver {
  Code (*init)(unsigned int flags);
  Code (*driver_get_version)(int* version);
  Code (*get_error_name)(Code code, const char** name);
  Code (*get_error_string)(Code code, const char** text);
  Code (*device_get_count)(int* count);
  Code (*device_get)(int* device, int index);
  Code (*device_get_name)(char* name, int length, int device);
  Code (*device_get_attribute)(int* value, DeviceAttribute attribute, int device);
  Code (*device_total_mem)(std::size_t* bytes, int device);
  Code (*device_primary_ctx_retain)(CUctx_st** context, int device);
  Code (*device_primary_ctx_release)(int device);
  Code (*ctx_push_current)(CUctx_st* context);
  Code (*ctx_pop_current)(CUctx_st** context);
  Code (*ctx_get_device)(int* device);
  Code (*ctx_get_stream_priority_range)(int* least, int* greatest);
  Code (*thread_exchange_stream_capture_mode)(CaptureMode* mode);
  Code (*stream_create_with_priority)(CUstream_st** stream, unsigned int flags, int priority);
  Code (*stream_destroy)(CUstream_st* stream);
  Code (*stream_get_id)(CUstream_st* stream, std::uint64_t* id);
  Code (*stream_is_capturing)(CUstream_st* stream, CaptureStatus* status);
  Code (*stream_wait_value)(CUstream_st* stream, DevicePointer word, std::uint32_t value, unsigned int flags);
  Code (*event_create)(CUevent_st** event, unsigned int flags);
  Code (*event_destroy)(CUevent_st* event);
  Code (*event_record)(CUevent_st* event, CUstream_st* stream);
  Code (*event_query)(CUevent_st* event);
  Code (*mem_alloc)(DevicePointer* memory, std::size_t bytes);
  Code (*mem_free)(DevicePointer memory);
  Code (*mem_get_info)(std::size_t* free, std::size_t* total);
  Code (*mem_host_register)(void* memory, std::size_t bytes, unsigned int flags);
  Code (*mem_host_unregister)(void* memory);
  Code (*mem_host_get_device_pointer)(DevicePointer* address, void* memory, unsigned int flags);
  Code (*mem_host_alloc)(void** memory, std::size_t bytes, unsigned int flags);
  Code (*mem_free_host)(void* memory);
  Code (*memcpy_dtoh_async)(void* target, DevicePointer source, std::size_t bytes, CUstream_st* stream);
  Code (*memcpy_htod_async)(DevicePointer target, const void* source, std::size_t bytes, CUstream_st* stream);
  Code (*memcpy_dtod_async)(DevicePointer target, DevicePointer source, std::size_t bytes, CUstream_st* stream);
  Code (*memset_d8_async)(DevicePointer target, unsigned char value, std::size_t bytes, CUstream_st* stream);
  Code (*module_load_data)(CUmod_st** module, const void* image);
  Code (*module_unload)(CUmod_st* module);
  Code (*module_get_function)(CUfunc_st** function, CUmod_st* module, const char* name);
  Code (*launch_kernel)(CUfunc_st* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream_st* stream, void** parameters, void** extra);
  Code (*pointer_get_attributes)(unsigned int count, PointerAttribute* attributes, void** values, DevicePointer memory);
};

// Loads libcuda.so.1 and initializes it. Unsupported, with the loader's words, if it is missing, too old or finds no
// device.
Result<Driver> load_driver();

// The failure of a driver's function: "cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access ...)".
// ResourceExhausted for memory, InvalidArgument for values and handles, else Aborted: the device can't go on.
Failure failure_of(const Driver& driver, const char* function, Code code);

}  // namespace qccl::device
