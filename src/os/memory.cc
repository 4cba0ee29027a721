#include "os/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "os/process.h"

namespace qccl::os {
namespace {

Result<Mapping> map(int fd, std::size_t bytes, std::uint64_t offset = 0, int flags = 0) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return os_failure(fmt::format("can't map {} bytes of shared memory", bytes), errno);
  return Mapping(Bytes(static_cast<std::byte*>(address), bytes));
}

// The kernel kills processes rather than refuse memory it lacks, so check first. Containers add limits. 0: unknown.
std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t kibibytes = 0;
  for (std::string word; file >> word;) {
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

// Allocates every page now, so that a full memory limit is an error here and not a SIGBUS later.
int allocate_pages(int fd, std::size_t bytes, std::uint64_t offset = 0) {
  int result = 0;
  do result = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  return result;
}

Status check_available(std::size_t bytes, const std::string& what) {
  if (bytes == 0) return Failure(ErrorKind::invalid_argument, what);
  const std::uint64_t available = available_bytes();
  if (available == 0 || bytes <= available) return {};
  return Failure(ErrorKind::resource_exhausted, fmt::format("{}: {} bytes are available", what, available));
}

Status seal(const Fd& fd) {
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return {};
  return os_failure("can't seal shared memory", errno);
}

constexpr std::uint64_t kPageBytes = 4096;

// The system ends a process by SIGXFSZ if its file would exceed the limit, so check first.
Status check_file_size(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t limit = file_size_limit().soft;
  if (bytes <= limit) return {};
  return Failure(
      ErrorKind::resource_exhausted,
      fmt::format("{}: files are limited to {} bytes, shared memory included (raise it: ulimit -f unlimited)", what,
                  limit));
}

constexpr const char* kRaiseLimit = " (raise the memory limit or /dev/shm)";

std::string cannot_get(std::size_t bytes) { return fmt::format("can't get {} bytes of shared memory", bytes); }

}  // namespace

void Mapping::reset() {
  if (bytes_.data() != nullptr) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

Result<SharedMemory> create_shared_memory(const char* name, std::size_t bytes) {
  const std::string what = cannot_get(bytes);
  QCCL_TRY(check_available(bytes, what));
  QCCL_TRY(check_file_size(bytes, what));
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return os_failure(ErrorKind::resource_exhausted, what, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 || allocate_pages(fd.get(), bytes) != 0) {
    return os_failure(ErrorKind::resource_exhausted, what + kRaiseLimit, errno);
  }
  QCCL_TRY(seal(fd));
  QCCL_ASSIGN(Mapping mapping, map(fd.get(), bytes));
  return SharedMemory{std::move(fd), std::move(mapping)};
}

Status check_sealed(const Fd& fd, std::uint64_t bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Failure(ErrorKind::corrupt_data, "a peer offered memory that is not sealed against shrinking");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return os_failure("can't size shared memory of a peer", errno);
  if (bytes == 0 || static_cast<std::uint64_t>(info.st_size) != bytes) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("a peer offered {} bytes of shared memory instead of {}", info.st_size, bytes));
  }
  return {};
}

Result<Mapping> map_shared_memory(const Fd& fd, std::size_t bytes) {
  QCCL_TRY(check_sealed(fd, bytes));
  return map(fd.get(), bytes);
}

// ---- heaps

Result<SharedHeapFile> create_shared_heap(const char* name, std::uint64_t most_bytes) {
  QCCL_TRY(check_file_size(kPageBytes, "can't make a heap of shared memory"));
  const std::uint64_t bytes = std::min(most_bytes, file_size_limit().soft / kPageBytes * kPageBytes);
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return os_failure(ErrorKind::resource_exhausted, "can't make a heap of shared memory", errno);
  }
  QCCL_TRY(seal(fd));
  return SharedHeapFile{std::move(fd), bytes};
}

Status commit_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes) {
  const std::string what = cannot_get(bytes);
  QCCL_TRY(check_available(bytes, what));
  if (allocate_pages(heap.get(), bytes, offset) == 0) return {};
  const int error = errno;
  discard_pages(heap, offset, bytes);
  return os_failure(ErrorKind::resource_exhausted, what + kRaiseLimit, error);
}

void discard_pages(const Fd& heap, std::uint64_t offset, std::size_t bytes) {
  if (heap.inherited()) return;
  ::fallocate(heap.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
}

Result<Mapping> map_shared_range(const Fd& heap, std::uint64_t offset, std::size_t bytes) {
  return map(heap.get(), bytes, offset, MAP_POPULATE);
}

}  // namespace qccl::os
