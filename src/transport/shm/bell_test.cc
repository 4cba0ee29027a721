#include "transport/shm/bell.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace qccl::shm {
namespace {

class Bell : public ::testing::Test {
 protected:
  std::unique_ptr<SleepWord> word_ = std::make_unique<SleepWord>();
  os::Fd eventfd_ = std::move(*os::create_eventfd());
  OwnBell own_{*word_};
  PeerBell peer_{*word_, eventfd_};
};

TEST_F(Bell, is_asleep_from_arm_until_one_ring_or_disarm) {
  EXPECT_FALSE(peer_.asleep());
  own_.arm();
  ASSERT_TRUE(peer_.asleep());
  peer_.ring();
  EXPECT_TRUE(os::drain_eventfd(eventfd_));
  EXPECT_FALSE(peer_.asleep());
  own_.disarm();
  own_.arm();
  EXPECT_TRUE(peer_.asleep());
  own_.disarm();
  EXPECT_FALSE(peer_.asleep());
}

TEST_F(Bell, a_late_ringer_does_not_end_the_next_sleep_unrung) {
  own_.arm();
  PeerBell late = peer_;
  ASSERT_TRUE(late.asleep());
  own_.disarm();
  own_.arm();
  late.ring();
  EXPECT_TRUE(os::drain_eventfd(eventfd_));
  EXPECT_TRUE(peer_.asleep()) << "a ringer after the late one must ring";
}

TEST_F(Bell, a_ringer_that_stops_before_it_clears_the_word_leaves_it_to_others) {
  own_.arm();
  PeerBell stopped = peer_;
  ASSERT_TRUE(stopped.asleep());
  os::ring_eventfd(eventfd_);  // and no further
  EXPECT_TRUE(peer_.asleep());
}

// Tests the proof of bell.h as a race: in each round one thread arms and checks, the other publishes and checks. They
// must never both miss each other. (Without the fences they do a few times, if both run at the same time.)
TEST_F(Bell, sleeper_and_ringer_never_miss_each_other) {
  constexpr std::uint32_t kRounds = 200'000;
  constexpr std::uint32_t kYieldAfter = 1000;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> published{0};
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> sleeper_at{0};
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> ringer_at{0};
  std::atomic<std::uint32_t> rung{0};
  const auto await = [](const std::atomic<std::uint32_t>& other, std::uint32_t round) {
    for (std::uint32_t polls = 1; other.load(std::memory_order_acquire) < round; ++polls) {
      if (polls % kYieldAfter == 0) std::this_thread::yield();
    }
  };
  std::thread ringer([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      ringer_at.store(2 * round - 1, std::memory_order_release);
      await(sleeper_at, 2 * round - 1);
      published.store(round, std::memory_order_release);
      full_fence();
      rung.store(peer_.asleep() ? round : 0, std::memory_order_relaxed);
      ringer_at.store(2 * round, std::memory_order_release);
      await(sleeper_at, 2 * round);
    }
  });
  std::uint32_t missed = 0;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    sleeper_at.store(2 * round - 1, std::memory_order_release);
    await(ringer_at, 2 * round - 1);
    own_.arm();
    const bool saw = published.load(std::memory_order_acquire) == round;
    await(ringer_at, 2 * round);
    if (!saw && rung.load(std::memory_order_relaxed) != round) ++missed;
    own_.disarm();
    sleeper_at.store(2 * round, std::memory_order_release);
  }
  ringer.join();
  EXPECT_EQ(missed, 0u);
}

}  // namespace
}  // namespace qccl::shm
