#include "os/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::os {
namespace {

constexpr std::size_t kBytes = 64 * 1024;

TEST(SharedMemory, is_zeroed_and_seen_through_every_mapping) {
  auto memory = create_shared_memory("test", kBytes);
  ASSERT_TRUE(memory.ok());
  auto other = map_shared_memory(memory->fd, kBytes);
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(other->size(), kBytes);
  for (const std::byte each : other->bytes()) ASSERT_EQ(each, std::byte{0});
  memory->mapping.data()[kBytes - 1] = std::byte{42};
  EXPECT_EQ(other->data()[kBytes - 1], std::byte{42});
}

TEST(SharedMemory, cannot_be_resized) {
  auto memory = create_shared_memory("test", kBytes);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate(memory->fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(memory->fd.get(), 2 * kBytes), 0);
}

TEST(SharedMemory, has_its_pages_at_once) {
  auto memory = create_shared_memory("test", kBytes);
  ASSERT_TRUE(memory.ok());
  struct stat info {};
  ASSERT_EQ(::fstat(memory->fd.get(), &info), 0);
  EXPECT_EQ(static_cast<std::size_t>(info.st_blocks) * 512, kBytes);
}

TEST(SharedMemory, more_than_the_machine_has_is_resource_exhausted_with_the_size) {
  const auto memory = create_shared_memory("test", std::size_t{1} << 62);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().kind, ErrorKind::resource_exhausted);
  EXPECT_NE(memory.error().message.find("4611686018427387904 bytes"), std::string::npos);
}

TEST(SharedMemory, a_peers_memory_of_another_size_is_corrupt_data) {
  auto memory = create_shared_memory("test", kBytes);
  ASSERT_TRUE(memory.ok());
  for (const std::size_t bytes : {std::size_t{0}, kBytes / 2, 2 * kBytes}) {
    const auto mapping = map_shared_memory(memory->fd, bytes);
    ASSERT_FALSE(mapping.ok());
    EXPECT_EQ(mapping.error().kind, ErrorKind::corrupt_data);
  }
}

TEST(SharedMemory, a_peers_memory_that_could_shrink_is_corrupt_data) {
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(unsealed.valid());
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  const auto mapping = map_shared_memory(unsealed, kBytes);
  ASSERT_FALSE(mapping.ok());
  EXPECT_EQ(mapping.error().kind, ErrorKind::corrupt_data);
}

TEST(SharedMemory, a_descriptor_that_is_no_memory_is_corrupt_data) {
  auto bell = create_eventfd();
  ASSERT_TRUE(bell.ok());
  const auto mapping = map_shared_memory(*bell, kBytes);
  ASSERT_FALSE(mapping.ok());
  EXPECT_EQ(mapping.error().kind, ErrorKind::corrupt_data);
}

TEST(Mapping, moving_leaves_the_source_empty_and_the_memory_mapped) {
  auto memory = create_shared_memory("test", kBytes);
  ASSERT_TRUE(memory.ok());
  std::byte* const address = memory->mapping.data();
  Mapping moved = std::move(memory->mapping);
  EXPECT_FALSE(memory->mapping.valid());
  EXPECT_EQ(moved.data(), address);
  address[0] = std::byte{1};
  moved.reset();
  EXPECT_NE(::msync(address, kBytes, MS_ASYNC), 0) << "still mapped";
}

}  // namespace
}  // namespace qccl::os
