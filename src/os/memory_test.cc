#include "os/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/expect_failure.h"

namespace qccl::os {
namespace {

constexpr std::size_t kBytes = 64 * 1024;

struct SharedMemoryTest : ::testing::Test {
  SharedMemory memory = create_shared_memory("test", kBytes).take_or_throw();
};

TEST_F(SharedMemoryTest, is_zeroed_and_seen_through_every_mapping) {
  const auto other = map_shared_memory(memory.fd, kBytes).take_or_throw();
  ASSERT_EQ(other.size(), kBytes);
  for (const std::byte each : other.bytes()) ASSERT_EQ(each, std::byte{0});
  memory.mapping.data()[kBytes - 1] = std::byte{42};
  EXPECT_EQ(other.data()[kBytes - 1], std::byte{42});
}

TEST_F(SharedMemoryTest, cannot_be_resized) {
  EXPECT_NE(::ftruncate(memory.fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(memory.fd.get(), 2 * kBytes), 0);
}

TEST_F(SharedMemoryTest, has_its_pages_at_once) {
  struct stat info {};
  ASSERT_EQ(::fstat(memory.fd.get(), &info), 0);
  EXPECT_EQ(static_cast<std::size_t>(info.st_blocks) * 512, kBytes);
}

TEST(SharedMemory, more_than_the_machine_has_is_resource_exhausted_with_the_size) {
  expect_failure(create_shared_memory("test", std::size_t{1} << 62), ErrorKind::resource_exhausted,
                 "4611686018427387904 bytes");
}

TEST_F(SharedMemoryTest, a_peers_memory_of_another_size_is_corrupt_data) {
  for (const std::size_t bytes : {std::size_t{0}, kBytes / 2, 2 * kBytes}) {
    expect_failure(map_shared_memory(memory.fd, bytes), ErrorKind::corrupt_data, "65536 bytes");
  }
}

TEST(SharedMemory, a_peers_descriptor_that_could_shrink_or_is_no_memory_is_corrupt_data) {
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  expect_failure(map_shared_memory(unsealed, kBytes), ErrorKind::corrupt_data);
  expect_failure(map_shared_memory(create_eventfd().take_or_throw(), kBytes), ErrorKind::corrupt_data);
}

// While it lives, no file of this process may grow beyond the limit.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit low = before_;
    low.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(SharedMemory, over_the_limit_on_file_sizes_is_resource_exhausted_with_the_remedy) {
  const FileSizeLimit limit(kBytes);
  EXPECT_TRUE(create_shared_memory("test", kBytes).ok());
  expect_failure(create_shared_memory("test", kBytes + 4096), ErrorKind::resource_exhausted,
                 "files are limited to 65536 bytes, shared memory included (raise it: ulimit -f unlimited)");
}

TEST(SharedHeap, has_the_size_asked_for_unless_files_are_limited) {
  constexpr std::uint64_t kHeap = std::uint64_t{1} << 46;
  auto heap = create_shared_heap("test", kHeap).take_or_throw();
  EXPECT_EQ(heap.bytes, kHeap);
  EXPECT_TRUE(check_sealed(heap.fd, kHeap).ok());
  const FileSizeLimit limit(10 * 4096 + 1);
  heap = create_shared_heap("test", kHeap).take_or_throw();
  EXPECT_EQ(heap.bytes, 10u * 4096);
  EXPECT_TRUE(check_sealed(heap.fd, heap.bytes).ok());
  EXPECT_TRUE(commit_pages(heap.fd, 9 * 4096, 4096).ok()) << "all of it can be had";
}

TEST(SharedHeap, of_less_than_a_page_is_resource_exhausted) {
  const FileSizeLimit limit(4095);
  expect_failure(create_shared_heap("test", 1 << 20), ErrorKind::resource_exhausted);
}

TEST_F(SharedMemoryTest, moving_leaves_the_source_empty_and_the_memory_mapped) {
  std::byte* const address = memory.mapping.data();
  Mapping moved = std::move(memory.mapping);
  EXPECT_FALSE(memory.mapping.valid());
  EXPECT_EQ(moved.data(), address);
  address[0] = std::byte{1};
  moved.reset();
  EXPECT_NE(::msync(address, kBytes, MS_ASYNC), 0) << "still mapped";
}

}  // namespace
}  // namespace qccl::os
