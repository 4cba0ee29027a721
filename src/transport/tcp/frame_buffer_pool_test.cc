#include "transport/tcp/frame_buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace qccl::tcp {
namespace {

TEST(FrameBufferPool, every_size_up_to_a_whole_frame_fits_and_begins_on_a_cache_line) {
  FrameBufferPool pool;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{512}, std::size_t{513}, std::size_t{65600}, std::size_t{65601}, kMaxFrameBytes}) {
    FrameBuffer* const buffer = pool.take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) buffer->data()[i] = std::byte{0xFF};
    pool.put_back(buffer);
  }
}

TEST(FrameBufferPool, hands_out_the_buffer_put_back_last) {
  FrameBufferPool pool;
  FrameBuffer* const first = pool.take(100);
  FrameBuffer* const second = pool.take(100);
  pool.put_back(second);
  pool.put_back(first);
  EXPECT_EQ(pool.take(200), first);
  EXPECT_EQ(pool.take(200), second);
}

TEST(FrameBufferPool, allocates_only_what_is_in_use_together) {
  FrameBufferPool pool;
  for (int round = 0; round < 10; ++round) {
    std::vector<FrameBuffer*> held;
    for (int i = 0; i < 5; ++i) held.push_back(pool.take(5000));
    for (FrameBuffer* buffer : held) pool.put_back(buffer);
  }
  EXPECT_EQ(pool.allocations(), 5u);
}

TEST(FrameList, is_first_in_first_out) {
  FrameBuffer a, b, c;
  FrameList list;
  EXPECT_TRUE(list.empty());
  list.push_back(&a);
  list.push_back(&b);
  EXPECT_EQ(list.pop_front(), &a);
  list.push_back(&c);
  EXPECT_EQ(list.front(), &b);
  EXPECT_EQ(list.pop_front(), &b);
  EXPECT_EQ(list.pop_front(), &c);
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace qccl::tcp
