// A CUDA driver without a GPU, for tests: a library that the loader finds as libcuda.so.1. Tests link it, or processes
// get its folder in LD_LIBRARY_PATH. The library under test sees the functions of driver.h, a test sees what follows.
//
// A stream is a thread that runs the stream's items in order, each after a delay drawn from the seed. A device has 8
// queues, or as many as CUDA_DEVICE_MAX_CONNECTIONS says (1 to 32), and deals its streams to them in turn: an item
// waits for all that were submitted to its queue before it. Streams of different queues share no lock while their items
// run, so ThreadSanitizer sees a read or write that no event orders.
//
// Device memory is an address that nobody can read or write, with the bytes kept elsewhere: code that touches it on the
// host crashes. So is the address that devices have for registered memory. Bytes are poisoned when they are allocated.
// Functions that free memory, pinned and registered memory too, wait for all streams of the device.
//
// A module of PTX runs it on the CPU (tests/support/ptx); what it reads of device memory must have been written by a
// copy, a kernel or launch(). FAKE_CUDA_KERNELS=host in the environment, and images that a test invents, run the bodies
// of the library's kernels on the host instead.
//
// Calls that a real driver would not forgive, or that would make it crash, are misuses: without a context, with handles
// or memory that are not alive. Each is refused and noted.
//
// In the environment of a process FAKE_CUDA_FAIL=cuMemHostRegister=801 does what fail() does, and FAKE_CUDA_MISUSES
// names a file to which misuses are added.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/driver.h"

namespace qccl::device::fake {

inline constexpr std::byte kPoison{0xDB};
inline constexpr int kDevices = 2;  // unless a test asks for more
inline constexpr int kMostDevices = 8;
inline constexpr std::size_t kQueues = 8;  // of a device, unless the environment or a test asks for others
inline constexpr std::size_t kMostQueues = 32;

// Call it before the library sees the devices.
void set_device_count(int devices);
int device_count();

// Of the streams made from now on.
void set_delays(std::uint64_t seed, std::chrono::microseconds longest);
// Lets the function's call after `calls` others fail.
void fail(const std::string& function, Code code, int calls = 0);
// The misuses since the last call.
std::vector<std::string> take_misuses();
// What cuDriverGetVersion() says: 12000 at first.
void set_driver_version(int version);
// The images of the modules that are alive.
std::vector<const void*> loaded_images();
// Kernels launched so far.
std::size_t launches();
// How often a kernel's job has read a source, or written a payload, in registered memory.
struct RegisteredUses {
  std::size_t read = 0;
  std::size_t written = 0;
};
RegisteredUses registered_uses();
// How many queues the streams made from now on are dealt to. So many streams in a row have a queue of their own.
void set_queues(std::size_t queues);
// As the environment says.
std::size_t queues_of_environment();
// Hazards of gates that drivers may have: while a function waits to free memory, all other calls wait for it; streams
// see late what they wait for.
enum class Hazard { locking_free, late_stream };
inline constexpr Hazard kHazards[] = {Hazard::locking_free, Hazard::late_stream};
void set_hazard(Hazard hazard, bool on);
// A fault in the device's context, an illegal address for example: its streams drop what they have, and every call
// returns the code from now on; functions that give something back still do that. repair() makes it work again, which
// only the end of a process does to a GPU.
void fault(int device, Code code);
void repair(int device);
// Streams, events, modules, device and pinned allocations that are alive.
std::size_t live_objects();

// ---- what a program does with the CUDA runtime

enum class Kind { device, managed, pinned, registered };
void* allocate(Kind kind, std::size_t bytes, int device = 0);
void free(void* memory);
bool is_pinned(const void* memory);

// A held stream runs no items until release(); a capturing one can't be used.
CUstream_st* make_stream(int device = 0);
// A program may also give the library null for it.
CUstream_st* default_stream(int device);
void destroy(CUstream_st* stream);
void hold(CUstream_st* stream);
void release(CUstream_st* stream);
void capture(CUstream_st* stream, bool captures);

// The streams that the library has made and not destroyed, in order.
std::vector<CUstream_st*> library_streams();

// An item for a stream that touches no memory of the device.
void enqueue(CUstream_st* stream, std::function<void()> work);

// Items for a stream (null: device 0's default stream): a kernel that calls `work` with the memory's bytes and writes
// from there to the end of the allocation, and copies.
void launch(CUstream_st* stream, void* memory, std::function<void(std::byte*)> work);
void write(CUstream_st* stream, void* memory, const void* source, std::size_t bytes);
// Waits for the stream, then copies.
void read(CUstream_st* stream, const void* memory, void* target, std::size_t bytes);
void synchronize(CUstream_st* stream);

}  // namespace qccl::device::fake
