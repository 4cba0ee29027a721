// Doors and newcomers over real sockets of this host.
#include "bootstrap/door/door.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "bootstrap/door/newcomer.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

const std::string kJob = "job";

Seat some_seat() {
  return {.rank = 2,
          .world = 4,
          .job = "job/grown/1",
          .addresses = {"10.0.0.1", "fd00::1"},
          .port = 40000,
          .compression = "minmax:bits=4",
          .timeout_ns = 1,
          .meeting_ns = 2};
}

std::shared_ptr<Door> open_door() { return Door::open({.job = kJob}).take_or_throw(); }

std::vector<DoorAddress> addresses_of(const Door& door) { return parse_doors(door.address(), "test").take_or_throw(); }

// Asks for seats in a thread of its own.
class Waiting {
 public:
  explicit Waiting(const Door& door, Nanoseconds timeout = seconds(30))
      : newcomer_(fixed_doors(addresses_of(door)), kJob, nullptr, soon(timeout), kClock) {
    ask();
  }
  void ask() {
    answer_ = std::async(std::launch::async, [this] { return newcomer_.wait_for_seat(); });
  }
  Result<Seat> answer() { return answer_.get(); }
  bool settle(bool well) { return newcomer_.settle(well); }

 private:
  Newcomer newcomer_;
  std::future<Result<Seat>> answer_;
};

// Calls until one newcomer has answered.
Door::Called call_one(Door& door) {
  for (;;) {
    auto called = door.call(soon()).take_or_throw();
    if (called.size() == 1) return called;
    // Released before the wait.
    static_cast<void>(std::optional(std::move(called)));
    door.wait_for_another(soon()).take_or_throw();
  }
}

TEST(Seat, is_read_as_it_was_written) {
  const Seat seat = decode_seat(encode_seat(some_seat())).take_or_throw();
  EXPECT_EQ(seat.rank, 2);
  EXPECT_EQ(seat.world, 4);
  EXPECT_EQ(seat.job, some_seat().job);
  EXPECT_EQ(seat.addresses, some_seat().addresses);
  EXPECT_EQ(seat.port, 40000);
  EXPECT_EQ(seat.compression, some_seat().compression);
  EXPECT_EQ(seat.timeout_ns, 1);
  EXPECT_EQ(seat.meeting_ns, 2);
}

TEST(Seat, from_a_stranger_is_corrupt_data) {
  const std::string bytes = encode_seat(some_seat());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    expect_failure(decode_seat(bytes.substr(0, length)), ErrorKind::corrupt_data);
  }
  expect_failure(decode_seat(bytes + "x"), ErrorKind::corrupt_data);
  const auto changed = [](const auto& change) {
    Seat seat = some_seat();
    change(seat);
    return encode_seat(seat);
  };
  for (const std::string& wrong :
       {changed([](Seat& seat) { seat.rank = 4; }), changed([](Seat& seat) { seat.rank = -1; }),
        changed([](Seat& seat) { seat.world = kMaxWorld + 1; }), changed([](Seat& seat) { seat.port = 0; }),
        changed([](Seat& seat) { seat.addresses.clear(); }), changed([](Seat& seat) { seat.job = "\x1b[2J"; }),
        changed([](Seat& seat) { seat.timeout_ns = 0; }), changed([](Seat& seat) { seat.meeting_ns = -1; })}) {
    expect_failure(decode_seat(wrong), ErrorKind::corrupt_data);
  }
}

TEST(Door, gives_seats_in_the_order_of_arrival_and_tells_the_rest_to_wait) {
  const auto door = open_door();
  Waiting newcomer(*door);
  {
    const Door::Called called = call_one(*door);  // and gives no seat
  }
  Door::Called called = call_one(*door);
  called.seat(0, some_seat());
  EXPECT_EQ(newcomer.answer().take_or_throw().rank, 2);
}

TEST(Door, calls_those_again_whose_meeting_has_failed_and_no_members) {
  const auto door = open_door();
  Waiting newcomer(*door);
  for (const bool is_admitted : {false, true}) {
    Door::Called called = call_one(*door);
    called.seat(0, some_seat());
    newcomer.answer().take_or_throw();
    if (is_admitted) called.admit();
    static_cast<void>(std::optional(std::move(called)));  // its end
    EXPECT_EQ(newcomer.settle(true), is_admitted);
    if (!is_admitted) newcomer.ask();
  }
  EXPECT_EQ(door->call(soon()).take_or_throw().size(), 0U);
}

// A newcomer that only takes a ticket.
class Passer {
 public:
  explicit Passer(const Door& door)
      : store_({.host = addresses_of(door).front().host,
                .port = addresses_of(door).front().port,
                .deadline = soon(),
                .clock = &kClock}),
        keys_(store_, door_name(kJob), 0, kClock),
        ticket_(keys_.add("tickets", 1).take_or_throw()) {
    keys_.leave_will({{fmt::format("{}/gone", ticket_), ""}}).take_or_throw();
  }
  void answer() { keys_.set(fmt::format("{}/1/here", ticket_), "").take_or_throw(); }
  // Returns when the door knows that this newcomer has ended.
  void await_end_of(int ticket) {
    ASSERT_TRUE(keys_.get(fmt::format("{}/gone", ticket), soon()).take_or_throw().has_value());
  }

 private:
  TcpStore store_;
  KeySpace keys_;
  std::int64_t ticket_;
};

TEST(Door, does_not_wait_for_newcomers_that_have_ended) {
  const auto door = open_door();
  { const Passer ended(*door); }
  Passer next(*door);
  next.answer();
  next.await_end_of(1);
  EXPECT_EQ(door->call(soon(std::chrono::hours(1))).take_or_throw().size(), 1U);
}

TEST(Door, knows_whether_a_seated_newcomer_has_ended) {
  const auto door = open_door();
  std::optional<Passer> newcomer(std::in_place, *door);
  newcomer->answer();
  Door::Called called = call_one(*door);
  called.seat(0, some_seat());
  EXPECT_FALSE(called.has_lost_one().take_or_throw());
  newcomer.reset();
  const TimePoint limit = soon();
  while (!called.has_lost_one().take_or_throw()) ASSERT_LT(kClock.now(), limit);
}

TEST(Door, a_port_that_another_process_has_is_replaced) {
  const os::Fd taken = os::listen_tcp("", 0).take_or_throw();
  const std::uint16_t port = os::local_port(taken).take_or_throw();
  const auto door = Door::open({.job = kJob, .port = port}).take_or_throw();
  EXPECT_NE(addresses_of(*door).front().port, port);
}

TEST(Newcomer, waits_at_another_door_when_its_own_closes) {
  auto first = open_door();
  const auto second = open_door();
  std::vector<DoorAddress> doors = addresses_of(*first);
  for (const DoorAddress& door : addresses_of(*second)) doors.push_back(door);
  Newcomer newcomer(fixed_doors(doors), kJob, nullptr, soon(), kClock);
  auto answer = std::async(std::launch::async, [&] { return newcomer.wait_for_seat(); });
  first->wait_for_another(soon()).take_or_throw();
  first.reset();
  Door::Called called = call_one(*second);
  called.seat(0, some_seat());
  EXPECT_EQ(answer.get().take_or_throw().world, 4);
}

TEST(Newcomer, that_the_others_met_without_knocks_anew) {
  const auto door = open_door();
  Waiting newcomer(*door);
  {
    Door::Called called = call_one(*door);
    called.seat(0, some_seat());
    newcomer.answer().take_or_throw();
    called.admit();
  }
  EXPECT_FALSE(newcomer.settle(false));
  newcomer.ask();
  Door::Called called = call_one(*door);
  called.seat(0, some_seat());
  EXPECT_EQ(newcomer.answer().take_or_throw().rank, 2);
}

TEST(Newcomer, of_another_job_is_never_called) {
  const auto door = open_door();
  Newcomer newcomer(fixed_doors(addresses_of(*door)), "other", nullptr, soon(milliseconds(50)), kClock);
  expect_failure(newcomer.wait_for_seat(), ErrorKind::deadline_exceeded, "did not call grow()");
  EXPECT_EQ(door->call(soon()).take_or_throw().size(), 0U);
}

TEST(Newcomer, reads_doors_of_names_and_numbers) {
  const auto doors = parse_doors("node7:1,[fd00::1]:65535,10.0.0.1:40000", "test").take_or_throw();
  ASSERT_EQ(doors.size(), 3U);
  EXPECT_EQ(doors[0].host, "node7");
  EXPECT_EQ(doors[1].host, "fd00::1");
  EXPECT_EQ(doors[1].port, 65535);
  for (const char* wrong : {"", "node7", "node7:", ":1", "node7:0", "node7:65536", "a:1,,b:2", "[]:1"}) {
    expect_failure(parse_doors(wrong, "QCCL_JOIN"), ErrorKind::invalid_argument, "QCCL_JOIN");
  }
}

}  // namespace
}  // namespace qccl::bootstrap
