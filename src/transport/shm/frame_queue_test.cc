// Rings, and both ends of a frame queue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "os/memory.h"
#include "transport/mesh_test.h"
#include "transport/shm/frame_queue.h"

namespace qccl::shm {
namespace {

using transport_test::is_frame;
using transport_test::write_frame;

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

class FrameQueues : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLarge = 8;
  static constexpr std::size_t kLargeBytes = kMaxFrameBytes;
  static constexpr WorldRank kPeer{1};

  bool send(std::size_t bytes, std::uint64_t number, TrafficClass traffic = TrafficClass::data) {
    Reservation room = sender_.reserve(bytes, traffic);
    if (!room) return false;
    EXPECT_EQ(room.bytes().size(), bytes);
    write_frame(room.bytes(), number);
    sender_.commit(std::move(room), bytes);
    return true;
  }
  std::size_t send_while_room(std::size_t bytes, TrafficClass traffic = TrafficClass::data) {
    std::size_t sent = 0;
    while (send(bytes, sent, traffic)) ++sent;
    return sent;
  }
  // The large slots that the sender of an empty queue takes for frames that come back at once.
  std::vector<std::size_t> slots_taken(std::size_t reuse_distance, std::size_t frames) {
    std::memset(memory_.data(), 0, queue_bytes(kLarge));
    FrameQueueSender sender(queue_, kPeer, reuse_distance);
    FrameQueueReceiver receiver(queue_, pool_);
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < frames; ++i) {
      Reservation room = sender.reserve(kLargeBytes, TrafficClass::data);
      slots.push_back(queue_.slot_at(room.bytes().data()) - kSmallSlots);
      sender.commit(std::move(room), kLargeBytes);
      receiver.release(receiver.take()->frame);
    }
    return slots;
  }
  void forge_descriptor(RingItem item, std::uint16_t lap = 1) {
    queue_.control().descriptors.words[0].store(pack_ring_word(lap, item));
  }
  void forge_return(RingItem item, std::uint16_t lap = 1) {
    queue_.control().returns.words[0].store(pack_ring_word(lap, item));
  }

  os::Mapping memory_ = os::create_shared_memory("test-queue", queue_bytes(kLarge)).take_or_throw().mapping;
  FrameQueue queue_{memory_.data(), kLarge};
  CopyPool pool_;
  FrameQueueSender sender_{queue_, kPeer, kReuseDistance};
  FrameQueueReceiver receiver_{queue_, pool_};
};

TEST_F(FrameQueues, frames_arrive_in_order_with_their_bytes) {
  EXPECT_FALSE(receiver_.take());
  const std::vector<std::size_t> sizes{64, 65, kSmallSlotBytes, kSmallSlotBytes + 1, kLargeBytes};
  for (std::size_t i = 0; i < sizes.size(); ++i) ASSERT_TRUE(send(sizes[i], i));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(receiver_.arrived());
    const auto arrival = receiver_.take();
    EXPECT_EQ(arrival->bytes.size(), sizes[i]);
    EXPECT_TRUE(is_frame(arrival->bytes, i));
    receiver_.release(arrival->frame);
  }
  EXPECT_FALSE(receiver_.arrived());
}

TEST_F(FrameQueues, a_reservation_that_is_not_sent_costs_no_slot) {
  ASSERT_TRUE(sender_.reserve(kLargeBytes, TrafficClass::data));
  EXPECT_FALSE(receiver_.take());
  EXPECT_EQ(send_while_room(kLargeBytes), kLarge);
}

TEST_F(FrameQueues, held_frames_are_sent_in_any_order_besides_a_reservation) {
  Reservation first = sender_.hold(kLargeBytes);
  Reservation second = sender_.hold(kLargeBytes);
  ASSERT_TRUE(send(kLargeBytes, 0));
  Reservation reserved = sender_.reserve(kLargeBytes, TrafficClass::data);
  write_frame(second.bytes(), 1);
  sender_.commit(std::move(second), kLargeBytes);
  write_frame(reserved.bytes(), 2);
  sender_.commit(std::move(reserved), kLargeBytes);
  first = {};
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(is_frame(receiver_.take()->bytes, i));
  EXPECT_FALSE(receiver_.take());
  EXPECT_EQ(send_while_room(kLargeBytes), kLarge - 3);
}

TEST_F(FrameQueues, a_quarter_of_the_large_slots_is_never_held_and_no_small_one) {
  EXPECT_FALSE(sender_.hold(kSmallSlotBytes));
  std::vector<Reservation> held;
  while (Reservation room = sender_.hold(kLargeBytes)) held.push_back(std::move(room));
  EXPECT_EQ(held.size(), kLarge - kLarge / 4);
  EXPECT_EQ(send_while_room(kLargeBytes), kLarge / 4);
  held.clear();
  while (const auto arrival = receiver_.take()) receiver_.release(arrival->frame);
  EXPECT_EQ(send_while_room(kLargeBytes), kLarge);
}

TEST_F(FrameQueues, data_leaves_small_slots_to_control_frames) {
  EXPECT_EQ(send_while_room(100, TrafficClass::data), kSmallSlots - kControlSlots);
  EXPECT_EQ(send_while_room(100, TrafficClass::control), kControlSlots);
}

TEST_F(FrameQueues, slots_released_in_any_order_serve_again) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::size_t large = send_while_room(kLargeBytes);
    const std::size_t small = send_while_room(64, TrafficClass::control);
    EXPECT_EQ(large, kLarge);
    EXPECT_GT(small, kSmallSlots - 8) << "fewer returns than a batch are pending";
    std::vector<FrameQueueReceiver::Arrival> held;
    while (auto arrival = receiver_.take()) held.push_back(*arrival);
    ASSERT_EQ(held.size(), large + small);
    for (std::size_t i = 0; i < large; ++i) ASSERT_TRUE(is_frame(held[i].bytes, i));
    for (std::size_t i = 0; i < small; ++i) ASSERT_TRUE(is_frame(held[large + i].bytes, i));
    std::shuffle(held.begin(), held.end(), random);
    for (const auto& arrival : held) receiver_.release(arrival.frame);
  }
}

TEST_F(FrameQueues, a_receiver_that_holds_every_frame_never_stops_the_sender) {
  std::vector<FrameQueueReceiver::Arrival> held;
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
  for (const auto& arrival : held) receiver_.release(arrival.frame);
}

TEST_F(FrameQueues, buffers_for_copies_are_used_again) {
  for (int round = 0; round < 5; ++round) {
    std::vector<FrameQueueReceiver::Arrival> held;
    for (std::uint64_t i = 0; i < 2 * kLarge; ++i) {
      ASSERT_TRUE(send(kLargeBytes, i));
      held.push_back(*receiver_.take());
    }
    for (const auto& arrival : held) receiver_.release(arrival.frame);
  }
  EXPECT_EQ(pool_.buffers(), 2 * kLarge - kLarge / 4 * 3);
}

TEST_F(FrameQueues, a_starved_sender_learns_once_that_slots_came_back) {
  send_while_room(kLargeBytes);
  EXPECT_TRUE(receiver_.sender_starves());
  EXPECT_FALSE(sender_.slots_came_back());
  receiver_.release(receiver_.take()->frame);
  EXPECT_TRUE(receiver_.has_returned_slots());
  EXPECT_FALSE(receiver_.has_returned_slots());
  EXPECT_TRUE(sender_.slots_came_back());
  EXPECT_FALSE(sender_.slots_came_back());
  EXPECT_FALSE(receiver_.sender_starves());
  EXPECT_TRUE(send(kLargeBytes, 0));
}

// ---- a hostile sender

TEST_F(FrameQueues, a_malformed_descriptor_is_a_fault_and_nothing_is_taken_after_it) {
  struct Case {
    RingItem item;
    std::uint16_t lap;
    const char* fault;
  };
  const Case cases[] = {{{kSmallSlots + kLarge, 64}, 1, "it sent slot 72 of 72"},
                        {{0, kSmallSlotBytes + 1}, 1, "it sent a frame of 4161 bytes in a slot of 4160"},
                        {{kSmallSlots, kMaxFrameBytes + 1}, 1, "it sent a frame of 262209 bytes in a slot of 262208"},
                        {{kSmallSlots, 0xFFFFFFFF}, 1, "it sent a frame of 4294967295 bytes in a slot of 262208"},
                        {{3, 0}, 1, "it sent a frame of 0 bytes in a slot of 4160"},
                        {{0, 64}, 7, "the ring of descriptors is damaged"}};
  for (const Case& malformed : cases) {
    FrameQueueReceiver receiver(queue_, pool_);
    forge_descriptor(malformed.item, malformed.lap);
    EXPECT_FALSE(receiver.take());
    EXPECT_EQ(receiver.fault(), malformed.fault);
    forge_descriptor({0, 64});
    EXPECT_FALSE(receiver.take());
  }
}

TEST_F(FrameQueues, a_slot_sent_twice_is_a_fault) {
  ASSERT_TRUE(send(64, 0));
  const auto arrival = receiver_.take();
  ASSERT_TRUE(arrival);
  const auto slot = static_cast<std::uint32_t>(arrival->frame->slot);
  queue_.control().descriptors.words[1].store(pack_ring_word(1, {slot, 64}));
  receiver_.release(arrival->frame);  // but not returned yet
  EXPECT_FALSE(receiver_.take());
  EXPECT_NE(receiver_.fault().find("which had not been returned"), std::string::npos);
}

// ---- a hostile receiver

TEST_F(FrameQueues, a_malformed_return_is_a_fault) {
  for (const std::uint32_t slot : {0u, kSmallSlots + kLarge, 0xFFFFu}) {
    FrameQueueSender sender(queue_, kPeer, kReuseDistance);
    forge_return({slot, 0});
    static_cast<void>(sender.reserve(kLargeBytes, TrafficClass::data));
    EXPECT_NE(sender.fault().find("which it does not have"), std::string::npos) << slot;
  }
  forge_return({0, 0}, 9);
  static_cast<void>(sender_.reserve(kLargeBytes, TrafficClass::data));
  EXPECT_EQ(sender_.fault(), "the ring of returned slots is damaged");
}

// ---- reuse of large slots

TEST_F(FrameQueues, a_large_slot_is_reused_after_as_many_returns_as_the_reuse_distance) {
  const auto slots = slots_taken(3, 12);
  for (std::size_t i = 3; i < slots.size(); ++i) EXPECT_EQ(slots[i], slots[i - 3]) << "frame " << i;
  const auto distinct = [&](std::size_t distance) {
    const auto taken = slots_taken(distance, 2 * kLarge);
    return std::set<std::size_t>(taken.begin(), taken.end()).size();
  };
  EXPECT_EQ(distinct(1), 1u);
  EXPECT_EQ(distinct(3), 3u);
  EXPECT_EQ(distinct(kLarge + 5), kLarge) << "where slots are fewer than the distance, all are used";
}

// ---- two threads

TEST_F(FrameQueues, frames_of_random_sizes_stay_whole_between_two_threads) {
  constexpr std::uint64_t kFrames = 4000;
  std::thread other([&] {
    std::mt19937 random(2);
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const std::size_t limit = random() % 8 == 0 ? kLargeBytes : 600;
      while (!send(64 + random() % (limit - 63), i)) std::this_thread::yield();
    }
  });
  std::mt19937 random(3);
  std::vector<std::pair<FrameQueueReceiver::Arrival, std::uint64_t>> held;
  const auto release_one = [&] {
    const std::size_t which = random() % held.size();
    EXPECT_TRUE(is_frame(held[which].first.bytes, held[which].second));
    receiver_.release(held[which].first.frame);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    std::optional<FrameQueueReceiver::Arrival> arrival;
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
