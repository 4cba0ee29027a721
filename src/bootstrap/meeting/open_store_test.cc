#include "bootstrap/meeting/open_store.h"

#include <gtest/gtest.h>

#include <future>

#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/store/tcp_store.h"
#include "bootstrap/test_support.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

std::uint16_t free_port() { return TcpStoreServer::start("127.0.0.1", 0).take_or_throw()->port(); }

LaunchIdentity member(int rank, std::uint16_t port, bool hosts_store) {
  return {.rank = rank, .world = 2, .master_address = "localhost", .master_port = port, .hosts_store = hosts_store};
}

Result<OpenStore> open(const LaunchIdentity& launch) { return open_store(launch, nullptr, soon(), kClock); }

// Like rank 1: a client that has left nothing counts as a stranger.
void leave_card(Store& store) {
  store.set("qccl/default/0/1/card/1", encode_record({.world = 2, .token = 1, .process = "a test", .card = "card"}));
  EXPECT_TRUE(store.get("qccl/default/0/1/card/1", seconds(30)).has_value());
}

TEST(OpenStore, rank_0_serves_and_the_others_reach_it) {
  const auto port = free_port();
  auto rank_1 = open(member(1, port, false)).take_or_throw();
  auto value = std::async(std::launch::async, [&] { return rank_1.store->get("key", seconds(30)); });
  auto rank_0 = open(member(0, port, true)).take_or_throw();
  ASSERT_NE(rank_0.server, nullptr);
  EXPECT_EQ(rank_0.location, "at localhost:" + std::to_string(port));
  rank_0.store->set("key", "value");
  EXPECT_EQ(value.get(), "value");
  leave_card(*rank_1.store);
  auto closed = std::async(std::launch::async, [&] { rank_0.close(seconds(30)); });
  EXPECT_EQ(rank_1.store->get("key", seconds(30)), "value");
  rank_1.close(seconds(30));
  closed.get();
}

// Rank 0 gives up and ends its store at once; rank 1, which waits in it, still learns why.
TEST(OpenStore, the_reason_for_giving_up_arrives_before_the_store_ends) {
  const auto port = free_port();
  const auto meet = [&](int rank, Nanoseconds timeout) {
    const StartLimit limit{&kClock, soon(timeout), timeout};
    auto opened = open_store(member(rank, port, rank == 0), nullptr, limit.deadline, kClock).take_or_throw();
    KeySpace keys(*opened.store, "default", 0, kClock);
    auto result = gather_cards(keys, {rank, 3, "a test", "card", opened.location}, limit);
    opened.close(seconds(5));
    return result;
  };
  auto rank_1 = std::async(std::launch::async, meet, 1, seconds(30));
  EXPECT_FALSE(meet(0, seconds(2)).ok());
  expect_failure(rank_1.get(), ErrorKind::deadline_exceeded,
                 "rank 1 of 3: rank 0 gave up: rank 2 did not appear within 2.0 s");
}

TEST(OpenStore, where_the_launcher_serves_rank_0_is_a_client_like_any_other) {
  auto agent = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  auto rank_0 = open(member(0, agent->port(), false)).take_or_throw();
  EXPECT_EQ(rank_0.server, nullptr);
  EXPECT_EQ(rank_0.store->add("n", 1), 1);
}

TEST(OpenStore, a_taken_port_says_what_to_do) {
  auto other = TcpStoreServer::start("", 0).take_or_throw();
  auto rank_0 = open(member(0, other->port(), true));
  expect_failure(rank_0, ErrorKind::resource_exhausted, "rank 0 of 2: ");
  expect_failure(rank_0, ErrorKind::resource_exhausted, "MASTER_PORT");
}

TEST(OpenStore, a_store_of_the_program_is_used_unchanged) {
  const auto own = std::make_shared<TcpStore>(TcpStoreOptions{"127.0.0.1", 1, soon(), &kClock});
  auto opened = open_store(member(0, 1, false), own, soon(), kClock).take_or_throw();
  EXPECT_EQ(opened.store, own);
  EXPECT_EQ(opened.server, nullptr);
}

LaunchIdentity at_socket(int rank) {
  const std::string socket = "qccl-test/" + std::to_string(os::process_id());
  return {.rank = rank, .world = 2, .meeting_socket = socket, .hosts_store = rank == 0};
}

TEST(OpenStore, ranks_of_one_host_meet_at_a_socket_in_any_order) {
  auto rank_1 = open(at_socket(1)).take_or_throw();
  auto value = std::async(std::launch::async, [&] { return rank_1.store->get("key", seconds(30)); });
  auto rank_0 = open(at_socket(0)).take_or_throw();
  EXPECT_EQ(rank_0.location.find("at unix socket @qccl-test/"), 0u);
  rank_0.store->set("key", "value");
  EXPECT_EQ(value.get(), "value");
  expect_failure(open(at_socket(0)), ErrorKind::resource_exhausted, "another process has rank 0");
  rank_1.close(seconds(30));
  rank_0.close(seconds(30));
}

TEST(OpenStore, a_socket_without_a_listener_is_a_failure_at_the_deadline) {
  LaunchIdentity lonely = at_socket(1);
  lonely.meeting_socket += "/nobody";
  auto opened = open_store(lonely, nullptr, soon(milliseconds(50)), kClock).take_or_throw();
  EXPECT_THROW(opened.store->set("key", "value"), Error);
}

TEST(OpenStore, rank_0_on_another_host_than_mpirun_is_refused) {
  LaunchIdentity elsewhere = member(0, free_port(), true);
  elsewhere.master_address = "192.0.2.77";
  elsewhere.master_is_guess = true;
  expect_failure(open(elsewhere), ErrorKind::invalid_argument, "rank 0 is not on the host of mpirun (192.0.2.77)");
}

}  // namespace
}  // namespace qccl::bootstrap
