// Where a rank's buffers lie: in host memory, or in the memory of a GPU, with a stream of their own.
#pragma once

#include <qccl/qccl.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>

namespace qccl::tools {

enum class DeviceKind { cpu, cuda };

// One thread at a time.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;

  // Page-aligned memory that is not touched before use and lives as long as this. Throws std::bad_alloc or qccl::Error.
  virtual std::byte* allocate(std::uint64_t bytes) = 0;
  // Of calls on these buffers; unset for host memory.
  virtual std::optional<DeviceStream> stream() const = 0;
  virtual int device() const = 0;
  virtual std::string name() const = 0;

  // Host memory for the contents of a buffer, which put() then brings there. One buffer at a time.
  virtual std::byte* contents(std::byte* buffer, std::uint64_t bytes) = 0;
  virtual void put(std::byte* buffer, std::uint64_t bytes) = 0;
  // The buffer's contents in host memory, until the next call.
  virtual const std::byte* get(const std::byte* buffer, std::uint64_t bytes) = 0;
  // A copy that later calls on the buffers see; it may return earlier.
  virtual void copy(std::byte* target, const std::byte* source, std::uint64_t bytes) = 0;
};

std::unique_ptr<BufferMemory> make_host_buffers(int local_rank);
// `local_rank` selects the GPU: several ranks may share one. Throws qccl::Error where problem_of_devices() has a
// reason.
std::unique_ptr<BufferMemory> make_device_buffers(int local_rank);
// Why there are no buffers on a device; nothing if there are.
std::optional<std::string> problem_of_devices();

// Page-aligned host memory.
class Pages {
 public:
  Pages() = default;
  // Throws std::bad_alloc.
  explicit Pages(std::uint64_t bytes) {
    constexpr std::uint64_t kPage = 4096;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage)));
    if (data_ == nullptr) throw std::bad_alloc();
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace qccl::tools
