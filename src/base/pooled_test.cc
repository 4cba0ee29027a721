#include "base/pooled.h"

#include <gtest/gtest.h>

#include <cstring>

namespace qccl {
namespace {

TEST(PooledMemory, reuses_a_block_that_was_returned) {
  PooledMemory pool;
  void* const first = pool.allocate(100);
  void* const second = pool.allocate(100);
  EXPECT_NE(first, second);
  pool.deallocate(first, 100);
  EXPECT_EQ(pool.allocate(128), first);
  pool.deallocate(second, 100);
  EXPECT_NE(pool.allocate(129), second) << "the returned block is too small";
}

TEST(PooledMemory, blocks_of_every_size_hold_the_bytes_asked_for) {
  PooledMemory pool;
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 131'072, 131'073, 1 << 20}) {
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(pool.allocate(bytes));
      std::memset(blocks.back(), i, bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % alignof(std::max_align_t), 0u);
    }
    for (int i = 0; i < 3; ++i) {
      const auto* const held = static_cast<const unsigned char*>(blocks[static_cast<std::size_t>(i)]);
      if (bytes > 0) EXPECT_EQ(held[bytes - 1], i) << bytes;
      pool.deallocate(blocks[static_cast<std::size_t>(i)], bytes);
    }
  }
}

}  // namespace
}  // namespace qccl
