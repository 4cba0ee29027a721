#include "bootstrap/door/waiting_room.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/store_service.h"
#include "bootstrap/test_support.h"

namespace qccl::bootstrap {
namespace {

constexpr StoreRules::Client kGuest = 7, kOther = 8;

using Tickets = std::vector<std::int64_t>;

struct WaitingRoomTest : testing::Test {
  static std::string key(const std::string& name) { return "/qccl/job%2Fdoor/0/" + name; }
  void take_ticket(StoreRules::Client client, std::int64_t ticket) {
    ASSERT_TRUE(room.may_add(client, key("tickets"), 1));
    room.has_added(client, key("tickets"), ticket);
  }
  // As the server does it.
  bool set(StoreRules::Client client, const std::string& name) {
    const std::string value = name.ends_with("/here") ? some_answer() : "";
    if (!room.may_set(client, key(name), value)) return false;
    EXPECT_TRUE(state.set(key(name), value).ok());
    room.has_set(client, key(name), state);
    return true;
  }
  void call() {
    room.call();
    room.take_turn(state);
  }
  // Whose answers are there.
  Tickets here(TimePoint deadline = {}) {
    Tickets tickets;
    for (const auto& [ticket, record] : room.await_answers(deadline)) {
      EXPECT_EQ(record, some_answer());
      tickets.push_back(ticket);
    }
    return tickets;
  }

  WaitingRoom room{"job"};
  StoreState state{16 * 1024};
};

TEST_F(WaitingRoomTest, a_connection_takes_one_ticket) {
  EXPECT_FALSE(room.may_add(kGuest, key("tickets"), 2));
  EXPECT_FALSE(room.may_add(kGuest, key("tickets"), -1));
  EXPECT_FALSE(room.may_add(kGuest, key("others"), 1));
  EXPECT_FALSE(room.may_add(kGuest, "/qccl/other%2Fdoor/0/tickets", 1));
  take_ticket(kGuest, 1);
  EXPECT_FALSE(room.may_add(kGuest, key("tickets"), 1));
  EXPECT_TRUE(room.may_add(kGuest, key("tickets"), 0));
  EXPECT_TRUE(room.may_add(kOther, key("tickets"), 1));
  EXPECT_TRUE(room.may_stay(kGuest));
  EXPECT_FALSE(room.may_stay(kOther));
}

TEST_F(WaitingRoomTest, a_newcomer_reads_its_own_keys) {
  EXPECT_FALSE(room.may_read(kGuest, key("1/1/seat")));
  take_ticket(kGuest, 1);
  take_ticket(kOther, 2);
  EXPECT_TRUE(room.may_read(kGuest, key("1/1/seat")));
  EXPECT_FALSE(room.may_read(kOther, key("1/1/seat")));
  EXPECT_FALSE(room.may_read(kGuest, key("tickets")));
}

TEST_F(WaitingRoomTest, a_newcomer_is_called_from_its_ticket_on_until_it_ends) {
  take_ticket(kOther, 2);
  call();
  EXPECT_FALSE(state.has(key("1/1/call")));
  EXPECT_TRUE(state.has(key("2/1/call")));
  EXPECT_TRUE(set(kOther, "2/1/here"));
  EXPECT_EQ(here(), Tickets{2});
  room.has_ended(kOther, state);
  EXPECT_EQ(here(), Tickets());
  EXPECT_FALSE(room.has(2));
  EXPECT_FALSE(state.has(key("2/1/here")));
}

TEST_F(WaitingRoomTest, a_newcomer_answers_the_round_in_which_it_was_called_and_no_other) {
  take_ticket(kGuest, 1);
  EXPECT_FALSE(set(kGuest, "1/0/here"));
  EXPECT_FALSE(set(kGuest, "1/1/here"));
  for (const char* answer : {"1/1/here", "1/2/here"}) {
    call();
    EXPECT_TRUE(set(kGuest, answer));
    room.send_back(1);
  }
  EXPECT_FALSE(set(kGuest, "1/3/here"));
  take_ticket(kOther, 2);
  call();
  EXPECT_EQ(here(), Tickets());
  for (const char* name :
       {"1/2/here", "1/4/here", "1/03/here", "2/3/here", "1/3/seat", "1/3/in", "1/3/call", "1/gone"}) {
    EXPECT_FALSE(set(kGuest, name)) << name;
  }
  EXPECT_FALSE(set(kOther, "1/3/here"));
  EXPECT_FALSE(room.may_set(kGuest, key("1/3/here"), "x"));
  EXPECT_TRUE(set(kGuest, "1/3/here"));
  EXPECT_EQ(here(), Tickets{1});
}

TEST_F(WaitingRoomTest, a_newcomer_that_does_not_answer_is_not_called_again_and_may_answer_late) {
  take_ticket(kGuest, 1);
  take_ticket(kOther, 2);
  call();
  EXPECT_TRUE(set(kOther, "2/1/here"));
  EXPECT_EQ(here(), Tickets{2});
  room.send_back(2);
  call();
  EXPECT_TRUE(state.has(key("2/2/call")));
  EXPECT_TRUE(set(kOther, "2/2/here"));
  room.await_answers(TimePoint::max());  // not for the silent one
  EXPECT_TRUE(set(kGuest, "1/1/here"));
  EXPECT_EQ(here(), (Tickets{1, 2}));
}

TEST_F(WaitingRoomTest, newcomers_learn_whether_they_have_a_seat_and_whether_they_are_in) {
  const auto value = [this](const char* name) { return state.get(key(name)); };
  for (const StoreRules::Client client : {1U, 2U, 3U}) take_ticket(client, static_cast<std::int64_t>(client));
  call();
  for (const StoreRules::Client client : {1U, 2U, 3U}) {
    EXPECT_TRUE(set(client, std::to_string(client) + "/1/here"));
  }
  room.seat(1, "a seat");
  room.seat(2, "a seat");
  room.admit(1);
  for (const std::int64_t ticket : {1, 2, 3, 4}) room.send_back(ticket);
  EXPECT_EQ(value("1/1/seat"), nullptr) << "the server writes it in its turn";
  room.take_turn(state);
  EXPECT_EQ(*value("1/1/seat"), "a seat");
  EXPECT_EQ(*value("1/1/in"), "1");
  EXPECT_EQ(*value("2/1/seat"), "a seat");
  EXPECT_EQ(*value("2/1/in"), "");
  EXPECT_EQ(*value("3/1/seat"), "");
  EXPECT_EQ(value("3/1/in"), nullptr);
  call();
  EXPECT_EQ(value("1/2/call"), nullptr) << "a member";
  EXPECT_NE(value("2/2/call"), nullptr);
  EXPECT_NE(value("3/2/call"), nullptr);
}

TEST_F(WaitingRoomTest, an_answer_ends_the_keys_of_the_round_before) {
  take_ticket(kGuest, 1);
  for (int round = 1; round <= 12; ++round) {
    const std::string turn = "1/" + std::to_string(round) + "/";
    call();
    EXPECT_TRUE(set(kGuest, turn + "here"));
    EXPECT_FALSE(state.has(key("1/" + std::to_string(round - 1) + "/seat")));
    room.send_back(1);
    room.take_turn(state);
    EXPECT_TRUE(state.has(key(turn + "seat")));
    EXPECT_TRUE(state.has(key(turn + "call")));
  }
  room.has_ended(kGuest, state);
  EXPECT_FALSE(state.has(key("1/12/seat")));
}

// Each round took 700 bytes if they stayed, and each newcomer too.
TEST_F(WaitingRoomTest, rounds_and_newcomers_that_are_over_leave_nothing_in_the_store) {
  for (int ticket = 1; ticket <= 30; ++ticket) {
    take_ticket(kGuest, ticket);
    for (int round = 1; round <= 30; ++round) {
      const std::string turn = std::to_string(ticket) + "/" + std::to_string(round) + "/";
      call();
      ASSERT_TRUE(set(kGuest, turn + "here"));
      room.seat(ticket, std::string(100, 's'));
      room.send_back(ticket);
      room.take_turn(state);
      ASSERT_TRUE(state.has(key(turn + "in"))) << turn;
    }
    room.has_ended(kGuest, state);
  }
}

TEST_F(WaitingRoomTest, what_the_member_writes_for_those_that_have_ended_is_of_no_use) {
  take_ticket(kGuest, 1);
  call();
  EXPECT_TRUE(set(kGuest, "1/1/here"));
  room.seat(1, "a seat");
  room.has_ended(kGuest, state);
  room.admit(1);
  room.take_turn(state);
  EXPECT_FALSE(state.has(key("1/1/seat")));
  EXPECT_FALSE(state.has(key("1/1/in")));
}

TEST_F(WaitingRoomTest, an_answer_that_is_no_record_or_too_long_and_every_will_are_refused) {
  take_ticket(kGuest, 1);
  call();
  const auto may_answer = [this](const std::string& value) { return room.may_set(kGuest, key("1/1/here"), value); };
  EXPECT_TRUE(may_answer(some_answer()));
  EXPECT_FALSE(may_answer(""));
  EXPECT_FALSE(may_answer(some_answer() + "x"));
  EXPECT_FALSE(may_answer(encode_record({.card = std::string(kMaxCardBytes + 1, 'x')})));
  EXPECT_FALSE(room.may_leave(key("1/1/here"), some_answer()));
}

TEST_F(WaitingRoomTest, waits_end_when_all_have_answered_or_ended) {
  const SteadyClock clock;
  const TimePoint late = clock.now() + std::chrono::minutes(1);
  take_ticket(kGuest, 1);
  take_ticket(kOther, 2);
  room.await_uncalled(late);
  call();
  room.await_uncalled(clock.now());
  EXPECT_EQ(here(), Tickets());
  EXPECT_TRUE(set(kGuest, "1/1/here"));
  room.has_ended(kOther, state);
  EXPECT_EQ(here(late), Tickets{1});
  EXPECT_LT(clock.now(), late);
}

}  // namespace
}  // namespace qccl::bootstrap
