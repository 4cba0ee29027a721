// Doors and newcomers over real sockets of this host.
#include "bootstrap/door/door.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/door/newcomer.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

const std::string kJob = "job";

Seat some_seat() {
  return {.rank = 2,
          .world = 4,
          .job = "job/grown/1",
          .compression = "minmax:bits=4",
          .timeout_ns = 1,
          .meeting_ns = 2,
          .records = {"a", "b", "c", "d"}};
}

std::shared_ptr<Door> open_door() { return Door::open({.job = kJob}).take_or_throw(); }

std::vector<DoorAddress> addresses_of(const Door& door) { return parse_doors(door.address(), "test").take_or_throw(); }

Result<std::string> make_card(const std::string& /*host*/) { return std::string("card"); }

// Asks for seats in a thread of its own.
class Waiting {
 public:
  explicit Waiting(const Door& door, Nanoseconds timeout = seconds(30))
      : newcomer_(fixed_doors(addresses_of(door)), kJob, nullptr, soon(timeout), kClock) {
    ask();
  }
  void ask() {
    answer_ = std::async(std::launch::async, [this] { return newcomer_.wait_for_seat(make_card); });
  }
  Result<Seat> answer() { return answer_.get(); }
  Status look() { return newcomer_.look(); }
  bool settle(bool well) { return newcomer_.settle(well); }

 private:
  Newcomer newcomer_;
  std::future<Result<Seat>> answer_;
};

// Calls until one newcomer has answered.
Door::Called call_one(Door& door) {
  for (;;) {
    auto called = door.call(soon());
    if (called.size() == 1) return called;
    // Released before the wait.
    static_cast<void>(std::optional(std::move(called)));
    door.wait_for_another(soon());
  }
}

TEST(Seat, is_read_as_it_was_written) {
  const Seat seat = decode_seat(encode_seat(some_seat())).take_or_throw();
  EXPECT_EQ(seat.rank, 2);
  EXPECT_EQ(seat.world, 4);
  EXPECT_EQ(seat.job, some_seat().job);
  EXPECT_EQ(seat.records, some_seat().records);
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
        changed([](Seat& seat) { seat.world = kMaxWorld + 1; }), changed([](Seat& seat) { seat.records.pop_back(); }),
        changed([](Seat& seat) { seat.records[0].resize(kMaxRecordBytes + 1); }),
        changed([](Seat& seat) { seat.job = "\x1b[2J"; }), changed([](Seat& seat) { seat.timeout_ns = 0; }),
        changed([](Seat& seat) { seat.meeting_ns = -1; })}) {
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
  EXPECT_EQ(decode_record(called.record(0)).take_or_throw().card, "card");
  called.seat(some_seat());
  EXPECT_EQ(newcomer.answer().take_or_throw().rank, 2);
}

TEST(Door, calls_those_again_whose_meeting_has_failed_and_no_members) {
  const auto door = open_door();
  Waiting newcomer(*door);
  for (const bool is_admitted : {false, true}) {
    Door::Called called = call_one(*door);
    called.seat(some_seat());
    newcomer.answer().take_or_throw();
    newcomer.look().take_or_throw();
    if (is_admitted) called.admit();
    static_cast<void>(std::optional(std::move(called)));  // its end
    EXPECT_EQ(newcomer.settle(true), is_admitted);
    if (!is_admitted) newcomer.ask();
  }
  EXPECT_EQ(door->call(soon()).size(), 0U);
}

std::string job_key(const std::string& name) { return wire_key(key_prefix(door_name(kJob), 0)) + name; }

// A newcomer that takes a ticket, and answers when the test says so.
class Passer {
 public:
  explicit Passer(const Door& door)
      : store_({.host = addresses_of(door).front().host,
                .port = addresses_of(door).front().port,
                .deadline = soon(seconds(300)),
                .clock = &kClock}),
        keys_(store_, door_name(kJob), 0, kClock),
        ticket_(keys_.add("tickets", 1).take_or_throw()) {}
  void await_call() { ASSERT_TRUE(keys_.get(fmt::format("{}/1/call", ticket_), soon()).take_or_throw().has_value()); }
  void answer() {
    await_call();
    keys_.set(fmt::format("{}/1/here", ticket_), some_answer()).take_or_throw();
  }
  std::future<void> answering() {
    return std::async(std::launch::async, [this] { answer(); });
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
  const auto answering = next.answering();
  EXPECT_EQ(door->call(soon(std::chrono::minutes(1))).size(), 1U);
}

TEST(Door, does_not_wait_for_newcomers_that_end_meanwhile) {
  const auto door = open_door();
  auto silent = std::make_unique<Passer>(*door);
  auto ending = std::async(std::launch::async, [&] {
    silent->await_call();
    silent.reset();
  });
  EXPECT_EQ(door->call(soon(std::chrono::minutes(1))).size(), 0U);
}

TEST(Door, takes_the_late_answer_of_a_silent_newcomer) {
  const auto door = open_door();
  Passer silent(*door);
  EXPECT_EQ(door->call(soon(milliseconds(20))).size(), 0U);
  silent.answer();
  const TimePoint limit = soon();
  while (door->call(soon(std::chrono::minutes(1))).size() == 0) ASSERT_LT(kClock.now(), limit);
}

TEST(Door, knows_whether_a_seated_newcomer_has_ended) {
  const auto door = open_door();
  std::optional<Passer> newcomer(std::in_place, *door);
  auto answering = newcomer->answering();
  Door::Called called = call_one(*door);
  answering.get();
  called.seat(some_seat());
  EXPECT_FALSE(called.has_lost_one());
  newcomer.reset();
  const TimePoint limit = soon();
  while (!called.has_lost_one()) ASSERT_LT(kClock.now(), limit);
}

// A connection that speaks the protocol by itself.
class Stranger {
 public:
  Stranger(const Door& door, const char* address) : Stranger(addresses_of(door).front().port, address) {}
  Stranger(std::uint16_t port, const char* address) : fd_(connection_from(address, port)) {
    EXPECT_TRUE(os::set_no_delay(fd_));
    send(encode_request({.query = Query::validate, .number = kStoreMagic}));
  }
  void add_tickets(std::int64_t delta) {
    send(encode_request({.query = Query::add, .keys = {job_key("tickets")}, .number = delta}));
  }
  void set(const std::string& name, const std::string& value = "") {
    send(encode_request({.query = Query::set, .keys = {job_key(name)}, .value = value}));
  }
  // An add's answer; empty: the door has closed the connection.
  std::optional<std::int64_t> sum() {
    std::int64_t sum = 0;
    const auto bytes = std::as_writable_bytes(std::span(&sum, 1));
    return os::read_exactly(fd_, bytes, soon(), kClock).ok() ? std::optional(sum) : std::nullopt;
  }

 private:
  void send(const std::string& bytes) {
    static_cast<void>(os::write_exactly(fd_, std::as_bytes(std::span(bytes)), soon(), kClock));
  }
  os::Fd fd_;
};

TEST(Door, gives_a_connection_one_ticket) {
  const auto door = open_door();
  Stranger greedy(*door, "127.0.0.2"), twice(*door, "127.0.0.2");
  greedy.add_tickets(1'000'000'000);
  EXPECT_EQ(greedy.sum(), std::nullopt);
  twice.add_tickets(1);
  EXPECT_EQ(twice.sum(), 1);
  twice.add_tickets(1);
  EXPECT_EQ(twice.sum(), std::nullopt);
  const TimePoint begin = kClock.now();
  EXPECT_EQ(door->call(soon(std::chrono::minutes(1))).size(), 0U);
  EXPECT_LT(kClock.now() - begin, seconds(20));
}

TEST(Door, refuses_writes_that_no_newcomer_makes) {
  const auto door = open_door();
  for (const char* name :
       {"1/process", "7/process", "2/1/seat", "2/1/in", "2/1/call", "2/1/here", "2/gone", "tickets"}) {
    Passer honest(*door);
    Stranger forger(*door, "127.0.0.2");
    forger.set(name, std::string_view(name).ends_with("/here") ? some_answer() : "");
    forger.add_tickets(0);
    EXPECT_EQ(forger.sum(), std::nullopt) << name;
  }
}

// They are never called again, and are dropped as any crowd of strangers is.
TEST(Door, a_crowd_with_tickets_costs_its_first_call_the_patience_and_keeps_nobody_out) {
  allow_many_descriptors();
  const auto door = open_door();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(std::make_unique<Stranger>(*door, "127.0.0.2"));
    crowd.back()->add_tickets(1);
    EXPECT_EQ(crowd.back()->sum(), i + 1);
  }
  std::size_t left = 0;
  for (const auto& each : crowd) {
    each->add_tickets(0);
    left += each->sum() ? 1 : 0;
  }
  EXPECT_LE(left, TcpStoreServer::kMaxStrangers);
  Waiting newcomer(*door);
  EXPECT_LE(door->call(soon(milliseconds(100))).size(), 1U);
  const TimePoint begin = kClock.now();
  for (;;) {
    Door::Called called = door->call(soon(std::chrono::minutes(1)));
    if (called.size() == 0) continue;
    called.seat(some_seat());
    called.admit();
    break;
  }
  EXPECT_EQ(newcomer.answer().take_or_throw().rank, 2);
  EXPECT_LT(kClock.now() - begin, seconds(20));
}

TEST(WaitingRoom, keeps_those_that_hold_a_ticket_as_long_as_they_like) {
  const auto server =
      TcpStoreServer::start("", 0, std::make_shared<WaitingRoom>(kJob), {}, milliseconds(100)).take_or_throw();
  Stranger holder(server->port(), "127.0.0.1");
  holder.add_tickets(1);
  EXPECT_EQ(holder.sum(), 1);
  EXPECT_EQ(Stranger(server->port(), "127.0.0.1").sum(), std::nullopt) << "dropped when its time is up";
  holder.add_tickets(0);
  EXPECT_EQ(holder.sum(), 1);
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
  auto answer = std::async(std::launch::async, [&] { return newcomer.wait_for_seat(make_card); });
  first->wait_for_another(soon());
  first.reset();
  Door::Called called = call_one(*second);
  called.seat(some_seat());
  EXPECT_EQ(answer.get().take_or_throw().world, 4);
}

TEST(Newcomer, learns_that_the_members_have_ended_the_meeting_or_the_door) {
  auto door = open_door();
  Waiting newcomer(*door);
  std::optional<Door::Called> called(call_one(*door));
  called->seat(some_seat());
  newcomer.answer().take_or_throw();
  newcomer.look().take_or_throw();
  called.reset();
  const TimePoint limit = soon();
  while (newcomer.look().ok()) ASSERT_LT(kClock.now(), limit);
  expect_failure(newcomer.look(), ErrorKind::aborted, "the members have ended the meeting");
  door.reset();
  expect_failure(newcomer.look(), ErrorKind::peer_lost);
}

TEST(Newcomer, whose_card_cannot_be_made_fails) {
  const auto door = open_door();
  Newcomer newcomer(fixed_doors(addresses_of(*door)), kJob, nullptr, soon(), kClock);
  const auto refuse = [](const std::string&) -> Result<std::string> {
    return Failure(ErrorKind::invalid_argument, "no interface");
  };
  expect_failure(newcomer.wait_for_seat(refuse), ErrorKind::invalid_argument, "no interface");
}

TEST(Newcomer, that_the_others_met_without_knocks_anew) {
  const auto door = open_door();
  Waiting newcomer(*door);
  {
    Door::Called called = call_one(*door);
    called.seat(some_seat());
    newcomer.answer().take_or_throw();
    called.admit();
  }
  EXPECT_FALSE(newcomer.settle(false));
  newcomer.ask();
  Door::Called called = call_one(*door);
  called.seat(some_seat());
  EXPECT_EQ(newcomer.answer().take_or_throw().rank, 2);
}

TEST(Newcomer, of_another_job_is_refused) {
  const auto door = open_door();
  Newcomer newcomer(fixed_doors(addresses_of(*door)), "other", nullptr, soon(milliseconds(50)), kClock);
  expect_failure(newcomer.wait_for_seat(make_card), ErrorKind::deadline_exceeded, "the door of a job of another name");
  EXPECT_EQ(door->call(soon()).size(), 0U);
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
