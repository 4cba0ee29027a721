// Shared memory without a name: a memfd, passed to other processes over a unix socket. No crash leaves anything behind.
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

// `bytes` of zeroed memory whose pages are all allocated now (running out later would be a SIGBUS) and which can
// neither shrink nor grow. `name` appears only in /proc/PID/maps. ResourceExhausted names the amount.
Result<SharedMemory> create_shared_memory(const char* name, std::size_t bytes);

// CorruptData unless the descriptor is a memfd of exactly `bytes`, sealed against shrinking: reads can't fault.
Status check_sealed(const Fd& fd, std::uint64_t bytes);
// Maps memory made by another process's create_shared_memory, after check_sealed().
Result<Mapping> map_shared_memory(const Fd& fd, std::size_t bytes);

struct SharedHeapFile {
  Fd fd;
  std::uint64_t bytes = 0;
};

// A heap of `most_bytes`, or of the limit on file sizes if that is smaller. It has no pages yet, and can neither shrink
// nor grow. ResourceExhausted if not even a page fits the limit.
Result<SharedHeapFile> create_shared_heap(const char* name, std::uint64_t most_bytes);
// Allocates the pages of a range of the heap now. ResourceExhausted if the memory cannot be had.
Status commit_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes);
// Frees the pages of the range; processes that still map it read zeros.
void discard_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes);
// Maps a range of a heap that check_sealed() accepts; `offset` is a multiple of the page size.
Result<Mapping> map_shared_range(const Fd& heap, std::uint64_t offset, std::size_t bytes);

}  // namespace qccl::os
