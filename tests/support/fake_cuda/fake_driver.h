// The state behind fake_cuda.h: contexts, allocations, streams that are threads, and events.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "kernels/device/slice_job.h"
#include "support/fake_cuda/fake_cuda.h"
#include "support/ptx/launch.h"

// The driver's handles point to these.
struct CUctx_st {
  int device = 0;
};

struct CUfunc_st {
  qccl::kernels::device::Entry entry{};
  std::shared_ptr<qccl::ptx::Module> compiled;  // null: the body on the host
};

struct CUmod_st {
  const void* image = nullptr;
  std::array<CUfunc_st, qccl::kernels::device::kEntries> functions{};
};

struct CUevent_st {
  // Of the last record: whether the work before it has ended. Null: never recorded. Release and acquire: the work.
  std::shared_ptr<std::atomic<bool>> happened;
};

// A queue of a device, which streams share: their items run one at a time, in the order of add(). Thread-safe.
class SharedQueue {
 public:
  std::uint64_t add();
  void await_turn(std::uint64_t number);
  void end_turn();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t added_ = 0;  // guarded by mutex_, as what follows
  std::uint64_t ended_ = 0;
};

// Thread-safe.
struct CUstream_st {
 public:
  CUstream_st(int device, std::uint64_t seed, std::chrono::microseconds longest_delay, SharedQueue& queue);
  ~CUstream_st() { end(); }

  int device() const { return device_; }
  std::uint64_t id() const { return id_; }
  void add(std::function<void()> item);
  void set_held(bool held);
  // Waits for what it has now.
  void synchronize();
  // Waits until it has run what it has, also if it was held. It gets nothing more.
  void end();

  std::atomic<bool> captures{false};

 private:
  void run();
  std::function<void()> in_turn(std::function<void()> item);

  const int device_;
  const std::uint64_t id_;  // no other stream of the process has it
  const std::chrono::microseconds longest_delay_;
  SharedQueue& queue_;
  std::mt19937_64 random_;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> items_;  // guarded by mutex_, as what follows
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
  bool held_ = false;
  bool ending_ = false;
  std::thread thread_;
};

namespace qccl::device::fake {

// Bytes of an allocation. A device's address range is reserved and unreadable, and the bytes lie elsewhere; so is the
// address that devices have for registered memory.
struct Allocation {
  Kind kind;
  int device;
  std::size_t bytes;
  std::byte* address;  // for devices
  std::byte* storage;
  std::vector<char> written{};  // of each byte of a device's memory; empty for others, which the host may write

  std::size_t offset_of(DevicePointer memory) const { return memory - reinterpret_cast<DevicePointer>(address); }
  std::byte* storage_of(DevicePointer memory) const { return storage + offset_of(memory); }

  // Whether something was written in every byte of the range, which lies inside.
  bool is_written(DevicePointer memory, std::size_t bytes) const;
  void note_written(DevicePointer memory, std::size_t bytes);
  // Notes a copy from `other`: bytes that were not written there stay unwritten here.
  void note_copied(DevicePointer memory, const Allocation& other, DevicePointer from, std::size_t bytes);
};

// The program's misuses, and failures to order. Thread-safe.
class Faults {
 public:
  Code misuse(const std::string& what);
  std::vector<std::string> take_misuses();
  void order_failure(const std::string& function, Code code, int calls);
  // Success unless a failure of the function is due.
  Code next_result(const std::string& function);

 private:
  struct OrderedFailure {
    Code code;
    int calls;
  };

  std::mutex mutex_;  // guards what follows
  std::vector<std::string> misuses_;
  std::map<std::string, OrderedFailure> failures_;
};

// Modules, and the version that decides which images the driver loads. Thread-safe.
class Modules {
 public:
  CUmod_st* make_module(const void* image, const std::shared_ptr<ptx::Module>& compiled);
  bool is_alive(CUmod_st* module);
  bool destroy(CUmod_st* module);
  std::vector<const void*> loaded_images();
  void count_launch() { ++launches_; }
  std::size_t launches() const { return launches_; }
  void count_registered(RegisteredUses uses) {
    read_registered_ += uses.read;
    written_registered_ += uses.written;
  }
  RegisteredUses registered_uses() const { return {read_registered_, written_registered_}; }
  int version() const { return version_; }
  void set_version(int version) { version_ = version; }

 private:
  std::atomic<int> version_{kDriverVersion};
  std::atomic<std::size_t> launches_{0};
  std::atomic<std::size_t> read_registered_{0};
  std::atomic<std::size_t> written_registered_{0};
  std::mutex mutex_;  // guards what follows
  std::map<CUmod_st*, std::unique_ptr<CUmod_st>> modules_;
};

// The devices' queues, which streams get in turn; default streams have the first. Thread-safe.
class Queues {
 public:
  void set_queues(std::size_t queues) { count_ = queues; }
  // Of the device's stream that is made now.
  SharedQueue& next_queue(int device);
  std::uint64_t next_stream_id() { return ++last_stream_id_; }
  SharedQueue& first_queue(int device) { return devices_[static_cast<std::size_t>(device)].queues[0]; }

 private:
  struct OfDevice {
    std::array<SharedQueue, kMostQueues> queues;
    std::atomic<std::size_t> next{1};
  };
  std::atomic<std::uint64_t> last_stream_id_{0};
  std::atomic<std::size_t> count_{queues_of_environment()};
  std::array<OfDevice, kMostDevices> devices_;
};

// The devices' contexts and default streams. Thread-safe.
class Devices {
 public:
  explicit Devices(Queues& queues);
  int device_count() const { return device_count_; }
  void set_device_count(int devices) { device_count_ = devices; }
  CUctx_st* primary(int device) { return &contexts_[device]; }
  bool is_context(const CUctx_st* context) const;
  // What all calls of the device's context return, because of a fault; success: they work.
  Code fault(int device) const { return faults_[static_cast<std::size_t>(device)]; }
  void set_fault(int device, Code code) { faults_[static_cast<std::size_t>(device)] = code; }
  std::shared_ptr<CUstream_st> default_stream(int device);
  bool is_default_stream(const CUstream_st* handle);

 private:
  Queues& queues_;
  std::atomic<int> device_count_{kDevices};
  CUctx_st contexts_[kMostDevices];
  std::array<std::atomic<Code>, kMostDevices> faults_{};
  std::mutex mutex_;                                                        // guards what follows
  std::array<std::shared_ptr<CUstream_st>, kMostDevices> default_streams_;  // null until used
};

// See fake_cuda.h. Thread-safe.
class Hazards {
 public:
  void set_hazard(Hazard hazard, bool on) { are_on_[static_cast<std::size_t>(hazard)] = on; }
  bool has(Hazard hazard) const { return are_on_[static_cast<std::size_t>(hazard)]; }
  // Held by a free that waits, if that holds up other calls.
  std::mutex& waiting() { return waiting_; }

 private:
  std::array<std::atomic<bool>, std::size(kHazards)> are_on_{};
  std::mutex waiting_;
};

// Thread-safe. One a process, as the functions of a C library have no object.
class FakeDriver {
 public:
  FakeDriver();

  Faults faults;
  Modules modules;
  Queues queues;
  Devices devices{queues};
  Hazards hazards;

  // The same as next_result() for a function that needs a current context, whose device it sets.
  Code begin(const char* function, int& device);
  // The whole of a function that gives back a `what`, which a context with a fault does as well: `end` is false if
  // there is none.
  Code give_back(const char* function, const char* what, const std::function<bool(int device)>& end);

  // The stream, if the function may use it now; else null, and `code` says why not.
  CUstream_st* usable(const char* function, CUstream_st* handle, Code& code);

  // ---- contexts of threads
  Code push(CUctx_st* context);
  Code pop(CUctx_st** context);
  // The device of the current context, if there is one.
  Code current_device(int& device);

  // ---- objects
  CUstream_st* make_stream(int device, bool is_library);
  std::vector<CUstream_st*> library_streams();
  CUstream_st* stream(CUstream_st* handle, int device = 0);  // null: the device's default. Null if it is not alive
  bool destroy(CUstream_st* stream);
  // A stream of the program's on the device is being captured.
  bool any_captures(int device);
  CUevent_st* make_event();
  bool is_alive(CUevent_st* event);
  bool destroy(CUevent_st* event);
  void* allocate(Kind kind, std::size_t bytes, int device);
  bool free(void* memory);
  // Memory of the program's that a device may use, until free(). False if some of it is known already.
  bool add_registered(void* memory, std::size_t bytes, int device);
  // Of a device's memory that is allocated.
  std::size_t allocated_bytes(int device);
  // The allocation that contains the range, as devices address it; null if there is none.
  std::shared_ptr<Allocation> find(const void* memory, std::size_t bytes);
  // The same, as the host addresses it: registered memory has another address there.
  std::shared_ptr<Allocation> find_on_host(const void* memory, std::size_t bytes);
  void set_delays(std::uint64_t seed, std::chrono::microseconds longest);
  // Waits for what the device's streams have now, as all functions do that free memory.
  void wait_to_free(int device);
  std::size_t live_objects();

 private:
  std::mutex mutex_;  // guards what follows
  std::map<std::thread::id, std::vector<CUctx_st*>> current_;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams_;
  std::vector<CUstream_st*> library_streams_;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
  std::map<const std::byte*, std::shared_ptr<Allocation>> allocations_;  // by the address for devices
  std::map<const std::byte*, std::shared_ptr<Allocation>> registered_;   // by the host's
  std::uint64_t seed_ = 1;
  std::chrono::microseconds longest_delay_{200};
};

FakeDriver& driver();

}  // namespace qccl::device::fake
