// Shared memory without a name: a memfd, passed to other processes over a unix socket. Nothing
// to clean up after a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// Owns an address range that is mapped read/write and shared; unmaps it.
class Mapping {
 public:
  Mapping() = default;
  // Takes ownership of a range from mmap().
  explicit Mapping(Bytes bytes) : bytes_(bytes) {}
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  bool valid() const { return bytes_.data() != nullptr; }
  void reset();

 private:
  Bytes bytes_;
};

struct SharedMemory {
  Fd fd;
  Mapping mapping;
};

// `bytes` of zeroed memory that has all its pages now (running out later would be a SIGBUS) and
// can neither shrink nor grow. `name` shows in /proc/PID/maps only.
// ResourceExhausted if the memory is not to be had: says how much was asked for.
Result<SharedMemory> create_shared_memory(const char* name, std::size_t bytes);

// Maps memory made by another process's create_shared_memory. CorruptData unless the descriptor
// is a memfd of exactly `bytes` that is sealed against shrinking, so that reads can't fault.
Result<Mapping> map_shared_memory(const Fd& fd, std::size_t bytes);

struct SharedHeapFile {
  Fd fd;
  std::uint64_t bytes = 0;
};

// A heap of `most_bytes`, or as large as the limit on file sizes lets it be, in which no page exists yet and which can
// neither shrink nor grow. ResourceExhausted if not even a page fits the limit.
Result<SharedHeapFile> create_shared_heap(const char* name, std::uint64_t most_bytes);
// Gives the range of a heap its pages now. ResourceExhausted if the memory is not to be had.
Status commit_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes);
// Takes the pages of the range back; who still maps it reads zeros.
void discard_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes);
// CorruptData unless the descriptor is a heap of exactly `bytes` made by create_shared_heap().
Status check_shared_heap(const Fd& heap, std::uint64_t bytes);
// Maps a range of a heap that was checked; `offset` is a multiple of the page size.
Result<Mapping> map_shared_range(const Fd& heap, std::uint64_t offset, std::size_t bytes);

// A counter to ring a doorbell with: non-blocking.
Result<Fd> create_eventfd();
// Makes the eventfd readable. Async-signal-safe.
void ring_eventfd(const Fd& fd);
// Makes it unreadable again; true if it had been rung.
bool drain_eventfd(const Fd& fd);

}  // namespace qccl::os
