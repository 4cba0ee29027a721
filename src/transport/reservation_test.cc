#include "transport/reservation.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace qccl {
namespace {

struct Counter final : Reservation::Owner {
  void give_back(const Reservation& room) override {
    ++returned;
    last_slot = room.slot();
  }

  int returned = 0;
  void* last_slot = nullptr;
};

class Reservations : public ::testing::Test {
 protected:
  Reservation reserved(void* slot = nullptr) { return {owner_, WorldRank(3), TrafficClass::control, memory_, slot}; }

  Counter owner_;
  std::array<std::byte, 8> memory_{};
};

TEST_F(Reservations, go_back_once_when_their_last_holder_ends) {
  {
    Reservation first = reserved(this);
    Reservation second = std::move(first);
    EXPECT_FALSE(first);
    ASSERT_TRUE(second);
    EXPECT_EQ(second.peer(), WorldRank(3));
    EXPECT_EQ(second.traffic(), TrafficClass::control);
    EXPECT_EQ(second.bytes().data(), memory_.data());
    EXPECT_EQ(owner_.returned, 0);
  }
  EXPECT_EQ(owner_.returned, 1);
  EXPECT_EQ(owner_.last_slot, this);
}

TEST_F(Reservations, go_back_when_their_holder_takes_another) {
  Reservation held = reserved(this);
  held = reserved();
  EXPECT_EQ(owner_.returned, 1);
  EXPECT_EQ(owner_.last_slot, this);
  Reservation& same = held;
  held = std::move(same);
  EXPECT_EQ(owner_.returned, 1) << "moved to itself";
  held = {};
  held = {};
  EXPECT_EQ(owner_.returned, 2);
}

TEST_F(Reservations, that_were_forgotten_never_go_back) {
  reserved().forget();
  EXPECT_EQ(owner_.returned, 0);
}

TEST_F(Reservations, append_a_payload_behind_what_is_there) {
  const std::array<std::byte, 2> payload{std::byte{5}, std::byte{6}};
  const Reservation room = reserved();
  EXPECT_EQ(room.append(3, payload), 5u);
  EXPECT_EQ(room.append(5, {}), 5u);
  EXPECT_EQ(memory_[2], std::byte{0});
  EXPECT_EQ(memory_[3], std::byte{5});
  EXPECT_EQ(memory_[4], std::byte{6});
}

}  // namespace
}  // namespace qccl
