// Both ends of a lane, in plain memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "transport/shm/lane_receiver.h"
#include "transport/shm/lane_sender.h"
#include "transport/shm/test_host.h"

namespace qccl::shm {
namespace {

using testing::fill_frame;
using testing::is_frame;

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

class LaneTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLarge = 8;
  static constexpr std::size_t kLargeBytes = kMaxFrameBytes;

  bool send(std::size_t bytes, std::uint64_t number, TrafficClass traffic = TrafficClass::data) {
    const Bytes room = sender_.reserve(bytes, traffic);
    if (room.empty()) return false;
    EXPECT_EQ(room.size(), bytes);
    fill_frame(room, number);
    sender_.commit(bytes);
    return true;
  }
  std::size_t send_while_room(std::size_t bytes, TrafficClass traffic = TrafficClass::data) {
    std::size_t sent = 0;
    while (send(bytes, sent, traffic)) ++sent;
    return sent;
  }
  // The large slots that a new sender takes for frames that come back at once.
  std::vector<std::size_t> slots_taken(std::size_t reuse_distance, std::size_t frames) {
    LaneSender sender(lane_, reuse_distance);
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < frames; ++i) {
      const Bytes room = sender.reserve(kLargeBytes, TrafficClass::data);
      slots.push_back(static_cast<std::size_t>(room.data() - lane_.slot(kSmallSlots)) / kLargeSlotBytes);
      sender.commit(kLargeBytes);
      receiver_.release(receiver_.take()->holding);
    }
    return slots;
  }
  void forge_descriptor(RingItem item, std::uint16_t lap = 1) {
    lane_.control().descriptors.words[0].store(pack_ring_word(lap, item));
  }
  void forge_return(RingItem item, std::uint16_t lap = 1) {
    lane_.control().returns.words[0].store(pack_ring_word(lap, item));
  }

  std::unique_ptr<std::byte, FreeMemory> memory_{[] {
    void* memory = std::aligned_alloc(kPageBytes, lane_bytes(kLarge));
    std::memset(memory, 0, lane_bytes(kLarge));
    return static_cast<std::byte*>(memory);
  }()};
  Lane lane_{memory_.get(), kLarge};
  CopyPool pool_;
  LaneSender sender_{lane_, kReuseDistance};
  LaneReceiver receiver_{lane_, pool_};
};

TEST_F(LaneTest, frames_arrive_in_order_with_their_bytes) {
  EXPECT_FALSE(receiver_.take());
  const std::vector<std::size_t> sizes{8, 64, kSmallSlotBytes, kSmallSlotBytes + 1, kLargeBytes};
  for (std::size_t i = 0; i < sizes.size(); ++i) ASSERT_TRUE(send(sizes[i], i));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(receiver_.arrived());
    const auto arrival = receiver_.take();
    ASSERT_TRUE(arrival);
    EXPECT_EQ(arrival->bytes.size(), sizes[i]);
    EXPECT_TRUE(is_frame(arrival->bytes, i));
    receiver_.release(arrival->holding);
  }
  EXPECT_FALSE(receiver_.arrived());
}

TEST_F(LaneTest, a_frame_may_be_shorter_than_its_reservation_or_not_sent_at_all) {
  const Bytes room = sender_.reserve(kLargeBytes, TrafficClass::data);
  fill_frame(room.first(100), 1);
  sender_.commit(100);
  ASSERT_FALSE(sender_.reserve(kLargeBytes, TrafficClass::data).empty());
  sender_.commit(0);
  const auto arrival = receiver_.take();
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->bytes.size(), 100u);
  EXPECT_FALSE(receiver_.take());
  EXPECT_EQ(send_while_room(kLargeBytes), kLarge - 1);
}

TEST_F(LaneTest, data_leaves_small_slots_to_control_frames) {
  EXPECT_EQ(send_while_room(100, TrafficClass::data), kSmallSlots - kControlSlots);
  EXPECT_EQ(send_while_room(100, TrafficClass::control), kControlSlots);
}

TEST_F(LaneTest, slots_released_in_any_order_serve_again) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::size_t large = send_while_room(kLargeBytes);
    const std::size_t small = send_while_room(64, TrafficClass::control);
    EXPECT_EQ(large, kLarge);
    EXPECT_GT(small, kSmallSlots - 8) << "fewer than a batch of returns is held back";
    std::vector<LaneReceiver::Arrival> held;
    while (auto arrival = receiver_.take()) held.push_back(*arrival);
    ASSERT_EQ(held.size(), large + small);
    for (std::size_t i = 0; i < large; ++i) ASSERT_TRUE(is_frame(held[i].bytes, i));
    for (std::size_t i = 0; i < small; ++i) ASSERT_TRUE(is_frame(held[large + i].bytes, i));
    std::shuffle(held.begin(), held.end(), random);
    for (const auto& arrival : held) receiver_.release(arrival.holding);
  }
}

TEST_F(LaneTest, a_receiver_that_holds_every_frame_never_stops_the_sender) {
  std::vector<LaneReceiver::Arrival> held;
  constexpr std::uint64_t kFrames = 10 * kLarge;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(send(kLargeBytes, 2 * i)) << i;
    ASSERT_TRUE(send(64, 2 * i + 1)) << i;
    for (int frame = 0; frame < 2; ++frame) {
      const auto arrival = receiver_.take();
      ASSERT_TRUE(arrival);
      held.push_back(*arrival);
    }
  }
  for (std::uint64_t i = 0; i < 2 * kFrames; ++i) ASSERT_TRUE(is_frame(held[i].bytes, i)) << i;
  // Three quarters of each class are held; the other frames were copied.
  EXPECT_EQ(pool_.buffers(), 2 * kFrames - (kLarge + kSmallSlots) / 4 * 3);
  for (const auto& arrival : held) receiver_.release(arrival.holding);
}

TEST_F(LaneTest, buffers_for_copies_are_used_again) {
  for (int round = 0; round < 5; ++round) {
    std::vector<LaneReceiver::Arrival> held;
    for (std::uint64_t i = 0; i < 2 * kLarge; ++i) {
      ASSERT_TRUE(send(kLargeBytes, i));
      held.push_back(*receiver_.take());
    }
    for (const auto& arrival : held) receiver_.release(arrival.holding);
  }
  EXPECT_EQ(pool_.buffers(), 2 * kLarge - kLarge / 4 * 3);
}

TEST_F(LaneTest, a_starved_sender_hears_once_that_slots_came_back) {
  send_while_room(kLargeBytes);
  EXPECT_TRUE(receiver_.sender_starves());
  EXPECT_FALSE(sender_.slots_came_back());
  receiver_.release(receiver_.take()->holding);
  EXPECT_TRUE(receiver_.returned());
  EXPECT_FALSE(receiver_.returned());
  EXPECT_TRUE(sender_.slots_came_back());
  EXPECT_FALSE(sender_.slots_came_back());
  EXPECT_FALSE(receiver_.sender_starves());
  EXPECT_TRUE(send(kLargeBytes, 0));
}

// ---- a hostile sender

TEST_F(LaneTest, a_slot_that_does_not_exist_is_a_fault) {
  forge_descriptor({kSmallSlots + kLarge, 64});
  EXPECT_FALSE(receiver_.take());
  EXPECT_EQ(receiver_.fault(), "it sent slot 72 of 72");
}

TEST_F(LaneTest, a_frame_longer_than_its_slot_is_a_fault) {
  for (const RingItem item : {RingItem{0, kSmallSlotBytes + 1}, RingItem{kSmallSlots, kMaxFrameBytes + 1},
                              RingItem{kSmallSlots, 0xFFFFFFFF}, RingItem{3, 0}}) {
    LaneReceiver receiver(lane_, pool_);
    forge_descriptor(item);
    EXPECT_FALSE(receiver.take());
    EXPECT_NE(receiver.fault().find("bytes in a slot of"), std::string::npos) << item.bytes;
  }
}

TEST_F(LaneTest, a_slot_sent_twice_is_a_fault) {
  ASSERT_TRUE(send(64, 0));
  const auto arrival = receiver_.take();
  ASSERT_TRUE(arrival);
  const auto slot = static_cast<std::uint32_t>(arrival->holding->slot);
  lane_.control().descriptors.words[1].store(pack_ring_word(1, {slot, 64}));
  receiver_.release(arrival->holding);  // but not returned yet
  EXPECT_FALSE(receiver_.take());
  EXPECT_NE(receiver_.fault().find("which had not been returned"), std::string::npos);
}

TEST_F(LaneTest, a_descriptor_of_another_lap_is_a_fault) {
  forge_descriptor({0, 64}, 7);
  EXPECT_FALSE(receiver_.take());
  EXPECT_EQ(receiver_.fault(), "the ring of descriptors is damaged");
}

TEST_F(LaneTest, nothing_is_taken_after_a_fault) {
  forge_descriptor({0, 0});
  EXPECT_FALSE(receiver_.take());
  forge_descriptor({0, 64});
  EXPECT_FALSE(receiver_.take());
}

TEST_F(LaneTest, a_large_slot_is_taken_again_when_as_many_came_back_as_the_reuse_distance_says) {
  const auto slots = slots_taken(3, 12);
  for (std::size_t i = 3; i < slots.size(); ++i) EXPECT_EQ(slots[i], slots[i - 3]) << "frame " << i;
  EXPECT_EQ(std::set<std::size_t>(slots.begin(), slots.end()).size(), 3u);
}

TEST_F(LaneTest, the_large_slot_that_came_back_last_is_taken_at_reuse_distance_one) {
  const auto slots = slots_taken(1, 5);
  EXPECT_EQ(std::set<std::size_t>(slots.begin(), slots.end()).size(), 1u);
}

TEST_F(LaneTest, all_large_slots_are_used_where_they_are_fewer_than_the_reuse_distance) {
  const auto slots = slots_taken(kLarge + 5, 2 * kLarge);
  EXPECT_EQ(std::set<std::size_t>(slots.begin(), slots.end()).size(), kLarge);
}

// ---- a hostile receiver

TEST_F(LaneTest, a_return_of_a_slot_that_is_not_away_is_a_fault) {
  for (const std::uint32_t slot : {0u, kSmallSlots + kLarge, 0xFFFFu}) {
    LaneSender sender(lane_, kReuseDistance);
    forge_return({slot, 0});
    static_cast<void>(sender.reserve(kLargeBytes, TrafficClass::data));
    EXPECT_NE(sender.fault().find("which it does not have"), std::string::npos) << slot;
  }
}

TEST_F(LaneTest, a_return_of_another_lap_is_a_fault) {
  forge_return({0, 0}, 9);
  static_cast<void>(sender_.reserve(kLargeBytes, TrafficClass::data));
  EXPECT_EQ(sender_.fault(), "the ring of returned slots is damaged");
}

// ---- two threads

TEST_F(LaneTest, frames_of_random_sizes_stay_whole_between_two_threads) {
  constexpr std::uint64_t kFrames = 4000;
  std::thread other([&] {
    std::mt19937 random(2);
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const std::size_t limit = random() % 8 == 0 ? kLargeBytes : 600;
      while (!send(8 + random() % (limit - 7), i)) std::this_thread::yield();
    }
  });
  std::mt19937 random(3);
  std::vector<std::pair<LaneReceiver::Arrival, std::uint64_t>> held;
  const auto release_one = [&] {
    const std::size_t which = random() % held.size();
    EXPECT_TRUE(is_frame(held[which].first.bytes, held[which].second));
    receiver_.release(held[which].first.holding);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    std::optional<LaneReceiver::Arrival> arrival;
    while (!(arrival = receiver_.take())) {
      std::this_thread::yield();
    }
    held.emplace_back(*arrival, i);
    while (held.size() > random() % 40) release_one();
  }
  while (!held.empty()) release_one();
  other.join();
}

}  // namespace
}  // namespace qccl::shm
