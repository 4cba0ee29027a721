#include "transport/shm/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace qccl::shm {
namespace {

using State = RingReader::State;

TEST(Ring, words_come_out_in_order_through_every_lap_number) {
  auto ring = std::make_unique<Ring>();
  RingWriter writer(*ring);
  RingReader reader(*ring);
  constexpr std::uint64_t kWords = (std::uint64_t{1} << 16) * kRingWords + 3 * kRingWords;  // the lap wraps
  for (std::uint64_t i = 0; i < kWords; ++i) {
    RingItem item;
    if (i % 1000 == 0) {
      ASSERT_EQ(reader.peek(item), State::empty);
      ASSERT_FALSE(reader.arrived());
    }
    writer.push({static_cast<std::uint32_t>(i % kMaxSlots), static_cast<std::uint32_t>(i)});
    ASSERT_TRUE(reader.arrived());
    ASSERT_EQ(reader.peek(item), State::ready);
    ASSERT_EQ(item.slot, i % kMaxSlots);
    ASSERT_EQ(item.bytes, static_cast<std::uint32_t>(i));
    reader.advance();
  }
}

TEST(Ring, a_word_of_another_lap_is_corrupt) {
  auto ring = std::make_unique<Ring>();
  RingReader reader(*ring);
  for (const std::uint16_t lap : {2, 3, 0xFFFF}) {
    ring->words[0].store(pack_ring_word(lap, {1, 64}));
    RingItem item;
    EXPECT_EQ(reader.peek(item), State::corrupt) << lap;
    EXPECT_TRUE(reader.arrived());
  }
}

TEST(Ring, what_was_written_before_a_push_is_seen_after_the_peek) {
  auto ring = std::make_unique<Ring>();
  auto back = std::make_unique<Ring>();
  constexpr int kRounds = 20'000;
  int shared = 0;  // not atomic: the rings alone order it
  std::thread other([&] {
    RingReader reader(*ring);
    RingWriter writer(*back);
    for (int i = 0; i < kRounds; ++i) {
      RingItem item;
      while (reader.peek(item) == State::empty) std::this_thread::yield();
      reader.advance();
      EXPECT_EQ(shared, 2 * i + 1);
      ++shared;
      writer.push({0, 0});
    }
  });
  RingWriter writer(*ring);
  RingReader reader(*back);
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(shared, 2 * i);
    ++shared;
    writer.push({0, 1});
    RingItem item;
    while (reader.peek(item) == State::empty) std::this_thread::yield();
    reader.advance();
  }
  other.join();
}

}  // namespace
}  // namespace qccl::shm
