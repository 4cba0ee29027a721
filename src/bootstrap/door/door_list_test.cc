// The doors that a store lists.
#include "bootstrap/door/door_list.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "bootstrap/door/door.h"
#include "bootstrap/door/newcomer.h"
#include "bootstrap/protocol/key_rules.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

using Doors = std::vector<std::string>;

std::shared_ptr<const secure::Key> key_of(const char* text) { return secure::find_key(text).take_or_throw(); }

const auto kKey = key_of("0123456789abcdef");

TEST(DoorList, is_read_as_it_was_written_the_newest_door_first) {
  for (const auto& key : {kKey, std::shared_ptr<const secure::Key>()}) {
    MemoryStore store;
    DoorList list(store, "job", key, kClock);
    EXPECT_EQ(list.read().take_or_throw(), Doors());
    list.add("10.0.0.1:1").take_or_throw();
    list.add("10.0.0.2:2,[fd00::1]:2").take_or_throw();
    EXPECT_EQ(list.read().take_or_throw(), (Doors{"10.0.0.2:2,[fd00::1]:2", "10.0.0.1:1"}));
    EXPECT_EQ(DoorList(store, "other", key, kClock).read().take_or_throw(), Doors());
  }
}

TEST(DoorList, has_no_doors_of_processes_without_the_key) {
  MemoryStore store;
  DoorList list(store, "job", kKey, kClock), other(store, "job", key_of("another key of mine"), kClock),
      without(store, "job", nullptr, kClock);
  other.add("10.0.0.1:1").take_or_throw();
  without.add("10.0.0.2:2").take_or_throw();
  expect_failure(list.read(), ErrorKind::invalid_argument, "another key");
  list.add("10.0.0.3:3").take_or_throw();
  EXPECT_EQ(list.read().take_or_throw(), Doors{"10.0.0.3:3"});
}

TEST(DoorList, an_entry_is_good_for_its_own_number_alone_and_wrong_ones_are_passed_over) {
  MemoryStore store;
  DoorList list(store, "job", kKey, kClock);
  list.add("10.0.0.1:1").take_or_throw();
  KeySpace keys(store, door_name("job"), 0, kClock);
  const auto entry = keys.get("door/1", kClock.now()).take_or_throw().value();
  for (const std::string& wrong : {entry, std::string("no record"), std::string()}) {
    const auto number = keys.add("doors", 1).take_or_throw();
    keys.set("door/" + std::to_string(number), wrong).take_or_throw();
  }
  keys.add("doors", 1).take_or_throw();  // and its process ends
  EXPECT_EQ(list.read().take_or_throw(), Doors{"10.0.0.1:1"});
}

TEST(DoorList, ends_where_the_store_that_rank_0_serves_takes_no_more) {
  const auto server = TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, 2)).take_or_throw();
  TcpStore store({.host = "127.0.0.1", .port = server->port(), .deadline = soon(), .clock = &kClock});
  DoorList list(store, "job", nullptr, kClock);
  for (int i = 1; i <= kMostListedDoors; ++i) list.add("10.0.0.1:" + std::to_string(i)).take_or_throw();
  expect_failure(list.add("10.0.0.1:1"), ErrorKind::resource_exhausted);
  EXPECT_EQ(list.read().take_or_throw().size(), static_cast<std::size_t>(kMostListedDoors));
}

// A newcomer whose source is the list of a store.
struct Listed {
  MemoryStore store;
  DoorList list{store, "job", kKey, kClock};
  int looks = 0;
  Newcomer newcomer{{.find = [this]() -> Result<std::vector<DoorAddress>> {
                       ++looks;
                       QCCL_ASSIGN(const auto doors, list.read());
                       std::vector<DoorAddress> addresses;
                       for (const std::string& door : doors) {
                         for (auto& each : parse_doors(door, "test").take_or_throw()) addresses.push_back(each);
                       }
                       return addresses;
                     },
                     .is_list = true},
                    "job",
                    kKey,
                    soon(),
                    kClock};
};

TEST(Newcomer, passes_over_closed_doors_and_those_of_other_jobs_until_the_store_lists_one_that_opens) {
  Listed listed;
  const os::Fd closed = os::reserve_tcp_port().take_or_throw();
  listed.list.add("127.0.0.1:" + std::to_string(os::local_port(closed).take_or_throw())).take_or_throw();
  const auto others = Door::open({.job = "other", .key = key_of("another key of mine")}).take_or_throw();
  listed.list.add(others->address()).take_or_throw();
  auto answer = std::async(std::launch::async, [&] {
    return listed.newcomer.wait_for_seat([](const std::string&) { return Result<std::string>("card"); });
  });
  const auto door = Door::open({.job = "job", .key = kKey}).take_or_throw();
  listed.list.add(door->address()).take_or_throw();
  door->wait_for_another(soon());
  Door::Called called = door->call(soon());
  ASSERT_EQ(called.size(), 1U);
  called.seat({.rank = 1, .world = 2, .job = "grown", .timeout_ns = 1, .meeting_ns = 1});
  EXPECT_EQ(answer.get().take_or_throw().job, "grown");
}

}  // namespace
}  // namespace qccl::bootstrap
