// Devices as the library uses them: owners of what the driver hands out. Every call of the driver runs with the
// device's primary context, which the program's CUDA runtime uses as well, and leaves the thread as it was.
//
// Nothing here blocks on a device. Objects outlive the work that was submitted with them: their owners wait for an
// event first. Destructors ignore errors: the driver may be gone when a process ends.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/driver.h"

namespace qccl::device {

// Where memory lies.
struct MemoryPlace {
  MemoryType type = MemoryType::unknown;
  bool is_managed = false;
  int device = -1;  // of device memory
};

// What a device is. Names of architectures are made of the compute capability: 9.0 is sm_90.
struct Traits {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
};

// A device's primary context. Any thread may use it.
class Device {
 public:
  static Result<std::unique_ptr<Device>> open(const Driver& driver, int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  const Driver& driver() const { return driver_; }
  Result<MemoryPlace> place_of(const void* memory) const;
  // Bytes of its memory that nobody uses now.
  Result<std::size_t> free_bytes() const;

  // Calls a function of the driver in the device's context.
  template <class... Parameters, class... Arguments>
  Code call(Code (*Driver::*function)(Parameters...), Arguments... arguments) const {
    const ScopedContext context(*this);
    return context.code() == Code::success ? (driver_.*function)(arguments...) : context.code();
  }

 private:
  // Makes the context current, and allows calls that would otherwise end a capture of the program's.
  class ScopedContext {
   public:
    explicit ScopedContext(const Device& device);
    ~ScopedContext();
    ScopedContext(const ScopedContext&) = delete;
    ScopedContext& operator=(const ScopedContext&) = delete;
    Code code() const { return code_; }

   private:
    const Driver& driver_;
    CaptureMode mode_ = CaptureMode::relaxed;
    const Code code_;
  };

  Device(const Driver& driver, int index, int handle, CUctx_st* context)
      : driver_(driver), index_(index), handle_(handle), context_(context) {}

  const Driver& driver_;
  const int index_;
  const int handle_;
  CUctx_st* const context_;
};

// The driver and the devices that have been used. Thread-safe.
class Runtime {
 public:
  // See load_driver().
  static Result<std::unique_ptr<Runtime>> open();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int device_count() const { return static_cast<int>(devices_.size()); }
  // "12.8", and the same as 12080.
  std::string driver_version() const;
  int driver_number() const;
  // Without opening the device.
  Result<Traits> traits(int index) const;
  // The device of the context that is current in this thread; nothing if none is.
  std::optional<int> current() const;
  // Opens the device the first time. InvalidArgument if there is none of this index.
  Result<Device*> device(int index);

 private:
  Runtime(const Driver& driver, int devices) : driver_(driver), devices_(static_cast<std::size_t>(devices)) {}

  const Driver driver_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_;  // by index, null until used; guarded by mutex_, except the size
};

// A point in a stream. One thread at a time.
class Event {
 public:
  static Result<std::unique_ptr<Event>> create(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Moves it behind the work that the stream of the device has now.
  Status record(CUstream_st* stream);
  // Whether the work before it has ended. A failure of the device ends it as well.
  Result<bool> has_happened() const;

 private:
  Event(const Device& device, CUevent_st* handle) : device_(device), handle_(handle) {}

  const Device& device_;
  CUevent_st* const handle_;
};

// A stream of the library's own, ahead of the program's kernels and independent of its default stream. Thread-safe.
class Stream {
 public:
  static Result<std::unique_ptr<Stream>> create(const Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* handle() const { return handle_; }
  Status copy_to_host(void* target, const void* source, std::size_t bytes);
  Status copy_to_device(void* target, const void* source, std::size_t bytes);
  Status copy_on_device(void* target, const void* source, std::size_t bytes);
  Status fill(void* target, std::byte value, std::size_t bytes);

 private:
  Stream(const Device& device, CUstream_st* handle) : device_(device), handle_(handle) {}

  const Device& device_;
  CUstream_st* const handle_;
};

// Host memory that devices copy from and to by themselves; all devices may.
class PinnedMemory {
 public:
  static Result<std::unique_ptr<PinnedMemory>> allocate(const Device& device, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  PinnedMemory(const Device& device, std::byte* data) : device_(device), data_(data) {}

  const Device& device_;
  std::byte* const data_;
};

// Memory of a device: an address that the host can't read.
class DeviceMemory {
 public:
  static Result<std::unique_ptr<DeviceMemory>> allocate(const Device& device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  DeviceMemory(const Device& device, std::byte* data) : device_(device), data_(data) {}

  const Device& device_;
  std::byte* const data_;
};

// Makes host memory of another owner, a mapping of shared memory for example, what PinnedMemory is, until it ends.
class Registration {
 public:
  // A failure of the driver where it can't: container runtimes and limits on locked memory refuse it.
  static Result<std::unique_ptr<Registration>> make(const Device& device, void* memory, std::size_t bytes);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Where kernels of the device find the memory, which need not be the host's address.
  Result<std::byte*> address_on(const Device& device) const;

 private:
  Registration(const Device& device, void* memory) : device_(device), memory_(memory) {}

  const Device& device_;
  void* const memory_;
};

// Refuses a stream that is being captured into a graph, or that waits for one (Unsupported): the library's host threads
// move a call's data.
Status check_not_capturing(const Device& device, CUstream_st* stream);

}  // namespace qccl::device
