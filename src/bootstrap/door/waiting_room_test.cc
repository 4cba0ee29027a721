#include "bootstrap/door/waiting_room.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "bootstrap/meeting/job_keys.h"
#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

constexpr StoreRules::Client kGuest = 7, kOther = 8;

struct WaitingRoomTest : testing::Test {
  static std::string key(const std::string& name) { return "/qccl/job%2Fdoor/0/" + name; }
  void take_ticket(StoreRules::Client client, std::int64_t ticket) {
    ASSERT_TRUE(room.may_add(client, key("tickets"), 1));
    room.has_added(client, key("tickets"), ticket);
  }
  // As the server does it.
  bool set(StoreRules::Client client, const std::string& name) {
    if (!room.may_set(client, key(name), "")) return false;
    EXPECT_TRUE(state.set(key(name), "").ok());
    room.has_set(client, key(name), state);
    return true;
  }
  // As the member does it.
  void call(std::int64_t ticket, int round) {
    room.call(ticket, round);
    EXPECT_TRUE(state.set(key(std::to_string(ticket) + "/" + std::to_string(round) + "/call"), "").ok());
  }

  WaitingRoom room{"job"};
  StoreState state;
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

TEST_F(WaitingRoomTest, a_newcomer_waits_once_it_has_said_so_and_until_it_ends) {
  take_ticket(kGuest, 1);
  take_ticket(kOther, 2);
  EXPECT_EQ(room.tickets(), std::vector<std::int64_t>());
  EXPECT_TRUE(set(kOther, "2/process"));
  EXPECT_TRUE(set(kGuest, "1/process"));
  EXPECT_EQ(room.tickets(), (std::vector<std::int64_t>{1, 2}));
  room.has_ended(kGuest, state);
  EXPECT_EQ(room.tickets(), std::vector<std::int64_t>{2});
  EXPECT_FALSE(room.has(1));
  EXPECT_FALSE(state.has(key("1/process")));
  EXPECT_TRUE(state.has(key("2/process")));
}

TEST_F(WaitingRoomTest, a_newcomer_answers_the_round_in_which_it_was_called_and_no_other) {
  take_ticket(kGuest, 1);
  EXPECT_FALSE(set(kGuest, "1/0/here"));
  EXPECT_FALSE(set(kGuest, "1/1/here"));
  call(1, 3);
  EXPECT_FALSE(room.has_answered(1));
  for (const char* name :
       {"1/2/here", "1/4/here", "1/03/here", "2/3/here", "1/3/seat", "1/3/in", "1/3/call", "1/gone"}) {
    EXPECT_FALSE(set(kGuest, name)) << name;
  }
  EXPECT_FALSE(set(kOther, "1/3/here"));
  EXPECT_FALSE(room.may_set(kGuest, key("1/3/here"), "x"));
  EXPECT_TRUE(set(kGuest, "1/3/here"));
  EXPECT_TRUE(room.has_answered(1));
  call(1, 4);
  EXPECT_FALSE(room.has_answered(1));
}

TEST_F(WaitingRoomTest, an_answer_ends_the_keys_of_the_round_before) {
  take_ticket(kGuest, 1);
  for (int round = 1; round <= 12; ++round) {
    const std::string turn = "1/" + std::to_string(round) + "/";
    call(1, round);
    EXPECT_TRUE(set(kGuest, turn + "here"));
    EXPECT_FALSE(state.has(key("1/" + std::to_string(round - 1) + "/seat")));
    ASSERT_TRUE(state.set(key(turn + "seat"), "").ok());
  }
  EXPECT_TRUE(state.has(key("1/12/seat")));
  EXPECT_TRUE(state.has(key("1/12/call")));
  room.has_ended(kGuest, state);
  EXPECT_FALSE(state.has(key("1/12/seat")));
}

TEST_F(WaitingRoomTest, what_the_member_writes_for_those_that_have_ended_is_of_no_use) {
  take_ticket(kGuest, 1);
  EXPECT_TRUE(room.is_of_use(key("1/1/seat")));
  EXPECT_TRUE(room.is_of_use(key("tickets")));
  room.has_ended(kGuest, state);
  EXPECT_FALSE(room.is_of_use(key("1/1/seat")));
}

TEST_F(WaitingRoomTest, a_process_that_is_too_long_and_every_will_are_refused) {
  take_ticket(kGuest, 1);
  EXPECT_FALSE(room.may_set(kGuest, key("1/process"), std::string(kMaxProcessBytes + 1, 'x')));
  EXPECT_FALSE(room.may_leave(key("1/process"), ""));
}

TEST_F(WaitingRoomTest, waits_end_when_all_have_answered_or_ended) {
  const SteadyClock clock;
  const TimePoint late = clock.now() + std::chrono::minutes(1);
  take_ticket(kGuest, 1);
  take_ticket(kOther, 2);
  EXPECT_TRUE(set(kGuest, "1/process"));
  room.await_uncalled(late);
  call(1, 1);
  call(2, 1);
  room.await_uncalled(clock.now());
  room.await_answers({1, 2}, clock.now());
  EXPECT_TRUE(set(kGuest, "1/1/here"));
  room.has_ended(kOther, state);
  room.await_answers({1, 2}, late);
  EXPECT_LT(clock.now(), late);
}

}  // namespace
}  // namespace qccl::bootstrap
