// What a program does with the CUDA runtime in tests (support/fake_cuda/fake_cuda.h), done by the machine's own driver:
// the tests of tests/gpu run on a GPU with it. What only the fake driver can do throws.
//
// A held stream waits for a word in pinned memory, which release() writes. Nothing that a test gives to a stream is
// freed before the process ends, so no call here waits for a stream that is held.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "gpu_driver/program_driver.h"
#include "gpu_driver/watched_driver.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::device::fake {
namespace {

using testing::ProgramDriver;

ProgramDriver& own() { return ProgramDriver::get(); }
testing::WatchedDriver& watched() { return testing::WatchedDriver::get(); }

constexpr unsigned int kAttachGlobal = 1;  // CU_MEM_ATTACH_GLOBAL

struct ProgramStream {
  int device = 0;
  std::uint32_t* word = nullptr;  // pinned: how often the stream was released
  std::uint32_t holds = 0;
};

struct ProgramMemory {
  Kind kind;
  int device;
  std::size_t bytes;
};

// Streams that tests have made or hold, and memory that they have made.
struct Made {
  std::mutex mutex;
  std::map<CUstream_st*, ProgramStream> streams;
  std::map<const std::byte*, ProgramMemory> memory;
};

Made& made() {
  static auto* const only = new Made;
  return *only;
}

// Ends the test, which main.cc then leaves out, even if it would take the exception for what it expects.
[[noreturn]] void refuse(const std::string& what) {
  const std::string message = std::string(testing::kOnlyFake) + " " + what;
  ADD_FAILURE() << message;
  throw std::runtime_error(message);
}

int device_of(CUstream_st* stream) {
  const std::lock_guard lock(made().mutex);
  const auto found = made().streams.find(stream);
  return found == made().streams.end() ? 0 : found->second.device;
}

DevicePointer address_of(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

std::byte* pinned(std::size_t bytes, int device) {
  void* memory = nullptr;
  own().call("cuMemHostAlloc", device, own().driver.mem_host_alloc, &memory, std::max<std::size_t>(bytes, 1),
             kHostAllocPortable);
  return static_cast<std::byte*>(memory);
}

// Makes the stream one that can be held.
void add(CUstream_st* stream, int device) {
  const std::lock_guard lock(made().mutex);
  if (made().streams.contains(stream)) return;
  auto* const word = reinterpret_cast<std::uint32_t*>(pinned(sizeof(std::uint32_t), device));
  *word = 0;
  made().streams[stream] = {.device = device, .word = word};
}

void copy(CUstream_st* stream, const void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  own().call("cuMemcpyAsync", device_of(stream), own().memcpy_async, address_of(target), address_of(source), bytes,
             stream);
}

// Runs it in the stream, on a thread of the driver.
void run(CUstream_st* stream, std::function<void()> work) {
  auto* const given = new std::function<void()>(std::move(work));
  const auto call = [](void* data) {
    const std::unique_ptr<std::function<void()>> taken(static_cast<std::function<void()>*>(data));
    (*taken)();
  };
  own().call("cuLaunchHostFunc", device_of(stream), own().launch_host_function, stream, +call,
             static_cast<void*>(given));
}

}  // namespace

// ---- what only the fake has

void set_delays(std::uint64_t, std::chrono::microseconds) {}  // a GPU has its own
std::vector<std::string> take_misuses() { return {}; }        // a GPU's driver would have failed
void set_hazard(Hazard, bool on) {
  if (on) refuse("have a hazard when asked for it");
}

// ---- what the library does

void fail(const std::string& function, Code code, int calls) { watched().fail(function, code, calls); }
std::size_t launches() { return watched().launches(); }
RegisteredUses registered_uses() { return watched().registered_uses(); }
std::size_t live_objects() { return watched().live_objects(); }

// A test may hold them.
std::vector<CUstream_st*> library_streams() {
  const std::vector<CUstream_st*> streams = watched().streams();
  for (CUstream_st* const stream : streams) add(stream, 0);
  return streams;
}
void set_queues(std::size_t queues) {
  if (queues != queues_of_environment()) refuse("have other queues than its process");
}
void fault(int, Code) { refuse("have a fault and go on"); }
void repair(int) { refuse("have a fault and go on"); }

// main.cc asks for the most.
std::size_t queues_of_environment() { return kMostQueues; }

// ---- memory

int device_count() { return own().device_count(); }

void* allocate(Kind kind, std::size_t bytes, int device) {
  const std::size_t some = std::max<std::size_t>(bytes, 1);
  DevicePointer memory = 0;
  if (kind == Kind::pinned) memory = address_of(pinned(some, device));
  if (kind == Kind::device) own().call("cuMemAlloc", device, own().driver.mem_alloc, &memory, some);
  if (kind == Kind::managed) {
    own().call("cuMemAllocManaged", device, own().mem_alloc_managed, &memory, some, kAttachGlobal);
  }
  auto* const bytes_there = reinterpret_cast<std::byte*>(memory);
  const std::vector<std::byte> poison(some, kPoison);
  copy(nullptr, bytes_there, poison.data(), some);
  own().call("cuStreamSynchronize", device, own().stream_synchronize, static_cast<CUstream_st*>(nullptr));
  const std::lock_guard lock(made().mutex);
  made().memory[bytes_there] = {kind, device, bytes};
  return bytes_there;
}

// Forgets it only: cuMemFree() would wait for the streams that the test holds.
void free(void* memory) {
  const std::lock_guard lock(made().mutex);
  if (made().memory.erase(static_cast<const std::byte*>(memory)) > 0) return;
  throw std::runtime_error("the test frees memory that it has not allocated");
}

bool is_pinned(const void* memory) {
  const std::lock_guard lock(made().mutex);
  const auto after = made().memory.upper_bound(static_cast<const std::byte*>(memory));
  return after != made().memory.begin() && std::prev(after)->second.kind == Kind::pinned;
}

// ---- streams

CUstream_st* make_stream(int device) {
  CUstream_st* stream = nullptr;
  own().call("cuStreamCreateWithPriority", device, own().driver.stream_create_with_priority, &stream,
             kStreamNonBlocking, 0);
  add(stream, device);
  return stream;
}

CUstream_st* default_stream(int) { return nullptr; }

void destroy(CUstream_st* stream) {
  release(stream);
  own().call("cuStreamDestroy", device_of(stream), own().driver.stream_destroy, stream);
  const std::lock_guard lock(made().mutex);
  made().streams.erase(stream);
}

void hold(CUstream_st* stream) {
  std::unique_lock lock(made().mutex);
  if (!made().streams.contains(stream)) refuse("hold a stream that is not the test's");
  ProgramStream& held = made().streams.at(stream);
  const std::uint32_t awaited = ++held.holds;
  const DevicePointer word = address_of(held.word);
  const int device = held.device;
  lock.unlock();
  own().call("cuStreamWaitValue32", device, own().driver.stream_wait_value, stream, word, awaited, kStreamWaitAtLeast);
}

void release(CUstream_st* stream) {
  const std::lock_guard lock(made().mutex);
  const ProgramStream& held = made().streams.at(stream);
  __atomic_store_n(held.word, held.holds, __ATOMIC_RELEASE);
}

void capture(CUstream_st* stream, bool captures) {
  CUgraph_st* graph = nullptr;  // of a test, and never run
  if (captures) {
    own().call("cuStreamBeginCapture", device_of(stream), own().stream_begin_capture, stream, CaptureMode::relaxed);
  } else {
    own().call("cuStreamEndCapture", device_of(stream), own().stream_end_capture, stream, &graph);
  }
}

void enqueue(CUstream_st* stream, std::function<void()> work) { run(stream, std::move(work)); }

void launch(CUstream_st* stream, void* memory, std::function<void(std::byte*)> work) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(made().mutex);
    const auto after = made().memory.upper_bound(static_cast<const std::byte*>(memory));
    if (after == made().memory.begin()) throw std::runtime_error("the test launches on memory that it has not made");
    const auto& [begin, found] = *std::prev(after);
    bytes = static_cast<std::size_t>(begin + found.bytes - static_cast<std::byte*>(memory));
  }
  std::byte* const there = pinned(bytes, device_of(stream));
  copy(stream, there, memory, bytes);
  run(stream, [work = std::move(work), there] { work(there); });
  copy(stream, memory, there, bytes);
}

void write(CUstream_st* stream, void* memory, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  std::byte* const content = pinned(bytes, device_of(stream));
  std::memcpy(content, source, bytes);
  copy(stream, memory, content, bytes);
}

void read(CUstream_st* stream, const void* memory, void* target, std::size_t bytes) {
  copy(stream, target, memory, bytes);
  synchronize(stream);
}

void synchronize(CUstream_st* stream) {
  own().call("cuStreamSynchronize", device_of(stream), own().stream_synchronize, stream);
}

}  // namespace qccl::device::fake
