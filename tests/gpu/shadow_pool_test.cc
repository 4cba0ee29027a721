// Host memory of staged calls: reused by size, pinned up to a limit.
#include <gtest/gtest.h>

#include "device_engine/staged/shadow_pool.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::engine {
namespace {

class ShadowPoolTest : public ::testing::Test {
 protected:
  Shadow take(ShadowPool& pool, std::size_t bytes) { return pool.take(*device_, bytes); }

  std::unique_ptr<device::Runtime> runtime_ = device::Runtime::open().take_or_throw();
  device::Device* const device_ = runtime_->device(0).take_or_throw();
};

TEST_F(ShadowPoolTest, a_shadow_is_the_next_power_of_two_and_is_used_again) {
  ShadowPool pool(1 << 20);
  Shadow first = take(pool, 5000);
  EXPECT_EQ(first.bytes, 8192u);
  EXPECT_NE(first.pinned, nullptr);
  EXPECT_EQ(take(pool, 1).bytes, 4096u);
  const std::byte* const memory = first.data();
  pool.give_back(std::move(first));
  EXPECT_EQ(take(pool, 8192).data(), memory);
}

TEST_F(ShadowPoolTest, over_the_limit_shadows_are_pageable) {
  ShadowPool pool(12 << 10);
  Shadow first = take(pool, 8 << 10);
  Shadow second = take(pool, 8 << 10);
  EXPECT_EQ(second.pinned, nullptr);
  EXPECT_EQ(second.bytes, 8u << 10);
  EXPECT_EQ(pool.pinned_bytes(), 8u << 10);
  second.data()[(8 << 10) - 1] = std::byte{1};
  pool.give_back(std::move(second));
  pool.give_back(std::move(first));
  EXPECT_NE(take(pool, 8 << 10).pinned, nullptr);
}

TEST_F(ShadowPoolTest, free_shadows_of_other_sizes_make_room_under_the_limit) {
  ShadowPool pool(16 << 10);
  for (const std::size_t bytes : {4u << 10, 8u << 10}) pool.give_back(take(pool, bytes));
  EXPECT_EQ(pool.pinned_bytes(), 12u << 10);
  EXPECT_NE(take(pool, 16 << 10).pinned, nullptr);
  EXPECT_EQ(pool.pinned_bytes(), 16u << 10);
}

TEST_F(ShadowPoolTest, memory_that_can_not_be_pinned_does_not_count) {
  ShadowPool pool(1 << 20);
  device::fake::fail("cuMemHostAlloc", device::Code::out_of_memory);
  EXPECT_EQ(take(pool, 4096).pinned, nullptr);
  EXPECT_EQ(pool.pinned_bytes(), 0u);
  EXPECT_NE(take(pool, 4096).pinned, nullptr);
}

}  // namespace
}  // namespace qccl::engine
