// Rank 0's store with a key: ranks, and strangers, over real sockets of this host.
#include "bootstrap/store/store_secrets.h"

#include <gtest/gtest.h>

#include <future>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/protocol/key_rules.h"
#include "bootstrap/store/tcp_store.h"
#include "bootstrap/store/tcp_store_server.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"
#include "secure/tls_pair.h"

namespace qccl::bootstrap {
namespace {

StoreSecrets secrets_of(std::string key = "sixteen bytes, or more", const std::string& job = "job") {
  return {std::make_shared<secure::Key>(secure::key_of(std::move(key))), job, 0};
}

TEST(StoreSecrets, are_found_for_the_job_only) {
  const StoreSecrets own = secrets_of();
  const auto credentials = own.credentials();
  EXPECT_TRUE(secure::equal(own.find(credentials.identity).take_or_throw().bytes(), credentials.secret.bytes()));
  for (const std::string& identity :
       {secrets_of("sixteen bytes, or more", "other").credentials().identity, std::string(), std::string("qccl store"),
        credentials.identity + "0000", credentials.identity + " "}) {
    expect_failure(own.find(identity), ErrorKind::misuse, "belongs to another job");
  }
}

struct KeyedStore : testing::Test {
  std::unique_ptr<TcpStoreServer> server = TcpStoreServer::start("127.0.0.1", 0, {}, secrets_of()).take_or_throw();

  TcpStore client(StoreSecrets secrets, std::uint16_t port = 0) const {
    return TcpStore({.host = "127.0.0.1",
                     .port = port == 0 ? server->port() : port,
                     .deadline = soon(),
                     .clock = &kClock,
                     .secrets = std::move(secrets)});
  }
};

TEST_F(KeyedStore, serves_ranks_that_have_the_key) {
  TcpStore one = client(secrets_of()), other = client(secrets_of());
  const std::string large(1000 * 1000, 'x');
  one.set("large", large);
  EXPECT_EQ(other.get("large", seconds(30)), large);
  auto awaited = std::async(std::launch::async, [&] { return other.get("later", seconds(30)); });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.add("n", 1), i + 1);
  one.set("later", "value");
  EXPECT_EQ(awaited.get(), "value");
  TcpStore own({.host = "", .deadline = soon(), .clock = &kClock}, server->take_own_client());
  EXPECT_EQ(own.add("n", 0), 100);
}

TEST_F(KeyedStore, a_key_that_does_not_come_is_waited_for_no_longer_than_asked) {
  TcpStore one = client(secrets_of());
  EXPECT_EQ(one.add("n", 1), 1);
  EXPECT_EQ(one.get("missing", milliseconds(20)), std::nullopt);
  EXPECT_EQ(one.counters({"n", "m"}), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(one.get("missing", milliseconds(20)), std::nullopt);
}

TEST_F(KeyedStore, refuses_another_key_job_or_none_at_once_and_says_why) {
  TcpStore good = client(secrets_of());
  const std::string advice = ": give all ranks the same key (QCCL_KEY_FILE, QCCL_KEY or InitOptions::key)";
  for (StoreSecrets wrong : {secrets_of("sixteen other bytes"), secrets_of("sixteen bytes, or more", "other")}) {
    TcpStore stranger = client(std::move(wrong));
    expect_failure(caught([&] { stranger.set("n", "1"); }), ErrorKind::invalid_argument,
                   "refused this rank's key" + advice);
  }
  TcpStore without = client({});
  expect_failure(caught([&] { without.set("n", "1"); }), ErrorKind::invalid_argument,
                 "has a key, and this rank has none" + advice);
  EXPECT_EQ(good.add("n", 1), 1);
}

TEST_F(KeyedStore, rank_0_says_whom_the_store_refused_when_it_has_waited_in_vain) {
  server = TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, 2), secrets_of()).take_or_throw();
  for (StoreSecrets wrong : {secrets_of("sixteen other bytes"), StoreSecrets(), StoreSecrets()}) {
    TcpStore stranger = client(std::move(wrong));
    EXPECT_FALSE(caught([&] { stranger.set("n", "1"); }).ok());
  }
  TcpStore own({.host = "", .deadline = soon(), .clock = &kClock}, server->take_own_client());
  KeySpace keys(own, "job", 0, kClock);
  const Participant rank_0{0, 2, "process 1 on here", "card", "at here"};
  expect_failure(gather_cards(keys, rank_0, {&kClock, soon(milliseconds(10)), milliseconds(10)}),
                 ErrorKind::deadline_exceeded,
                 "rank 1 did not appear within 0.0 s at here: check that they run, with the same MASTER_ADDR, "
                 "MASTER_PORT and job name; the store refused a connection from 127.0.0.1: it has another key; "
                 "127.0.0.1: it has no key: give all ranks the same key");
}

TEST_F(KeyedStore, a_rank_with_a_key_says_so_where_the_store_has_none) {
  const auto plain = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  TcpStore rank = client(secrets_of(), plain->port());
  expect_failure(caught([&] { rank.set("n", "1"); }), ErrorKind::invalid_argument, "has no key, and this rank has one");
}

TEST_F(KeyedStore, drops_who_has_not_shown_the_key_when_the_time_is_up_but_no_rank) {
  server =
      TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, 4), secrets_of(), milliseconds(500))
          .take_or_throw();
  TcpStore rank = client(secrets_of());
  EXPECT_EQ(rank.counters({"n"}), std::vector<std::int64_t>{0});
  const std::string beginning = "\x16\x03\x01\x02";
  std::vector<os::Fd> strangers;
  for (const std::size_t bytes : {0u, 1u, 4u}) {
    strangers.push_back(os::connect_tcp("127.0.0.1", server->port(), soon(), kClock).take_or_throw());
    const auto sent = std::as_bytes(std::span(beginning)).first(bytes);
    os::write_exactly(strangers.back(), sent, soon(), kClock).take_or_throw();
  }
  for (const os::Fd& stranger : strangers) {
    EXPECT_TRUE(os::wait_ready(stranger, os::Direction::read, soon(), kClock).take_or_throw());
    EXPECT_TRUE(os::peer_closed(stranger.get()));
  }
  EXPECT_EQ(rank.counters({"n"}), std::vector<std::int64_t>{0}) << "over the same connection";
}

// Ranks that have the key, but have stored nothing, are no strangers.
TEST_F(KeyedStore, a_crowd_displaces_no_rank) {
  allow_many_descriptors();
  TcpStore rank = client(secrets_of());
  EXPECT_EQ(rank.counters({"n"}), std::vector<std::int64_t>{0});
  std::vector<os::Fd> crowd;
  for (std::size_t i = 0; i < TcpStoreServer::kMaxStrangers + 1; ++i) {
    crowd.push_back(os::connect_tcp("127.0.0.1", server->port(), soon(), kClock).take_or_throw());
  }
  EXPECT_TRUE(os::wait_ready(crowd.front(), os::Direction::read, soon(), kClock).take_or_throw());
  EXPECT_EQ(rank.counters({"n"}), std::vector<std::int64_t>{0});
}

TEST_F(KeyedStore, a_thousand_half_open_handshakes_disturb_no_rank) {
  allow_many_descriptors();
  TcpStore good = client(secrets_of());
  EXPECT_EQ(good.add("n", 1), 1);
  std::vector<os::Fd> crowd;
  const std::string beginning = "\x16\x03\x01\x02";
  for (std::size_t i = 0; i < 1000; ++i) {
    crowd.push_back(os::connect_tcp("127.0.0.1", server->port(), soon(), kClock).take_or_throw());
    const auto bytes = std::as_bytes(std::span(beginning)).first(i % 5);
    if (!bytes.empty()) static_cast<void>(os::write_some(crowd.back().get(), bytes));
  }
  TcpStore late = client(secrets_of());
  EXPECT_EQ(late.add("n", 1), 2);
  EXPECT_TRUE(os::wait_ready(crowd.front(), os::Direction::read, soon(), kClock).take_or_throw());
  EXPECT_TRUE(os::peer_closed(crowd.front().get()));
}

}  // namespace
}  // namespace qccl::bootstrap
