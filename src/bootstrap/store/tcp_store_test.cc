// The embedded server and its client, over real sockets of this host.
#include "bootstrap/store/tcp_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "bootstrap/protocol/key_rules.h"
#include "bootstrap/store/store_service.h"
#include "bootstrap/store/tcp_store_server.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "os/test_user.h"

namespace qccl::bootstrap {
namespace {

using namespace std::string_literals;

std::unique_ptr<TcpStoreServer> start_server(std::uint16_t port = 0) {
  return TcpStoreServer::start("127.0.0.1", port).take_or_throw();
}

TcpStoreOptions options_at(std::uint16_t port, Nanoseconds timeout = seconds(30)) {
  return {.host = "127.0.0.1", .port = port, .deadline = soon(timeout), .clock = &kClock};
}

TcpStore client_of(const TcpStoreServer& server) { return TcpStore(options_at(server.port())); }

// A connection that sends and receives raw bytes.
class RawClient {
 public:
  explicit RawClient(const TcpStoreServer& server)
      : fd_(os::connect_tcp("127.0.0.1", server.port(), soon(), kClock).take_or_throw()) {}
  explicit RawClient(os::Fd fd) : fd_(std::move(fd)) {}

  void send(const std::string& bytes) {
    os::write_exactly(fd_, std::as_bytes(std::span(bytes)), soon(), kClock).take_or_throw();
  }
  std::string receive(std::size_t bytes) {
    std::string text(bytes, '\0');
    os::read_exactly(fd_, std::as_writable_bytes(std::span(text)), soon(), kClock).take_or_throw();
    return text;
  }
  // True once the server answers a ping: it has handled everything before.
  bool ping() {
    send("\x0D\x2A\0\0\0"s);
    return receive(4) == "\x2A\0\0\0"s;
  }
  // Blocks until the server has closed the connection; true if it sent nothing before.
  bool is_dropped() {
    std::byte byte;
    os::IoResult result{.would_block = true};
    while (result.would_block) {  // a socket may be ready in vain
      os::wait_ready(fd_, os::Direction::read, soon(), kClock).take_or_throw();
      result = os::read_some(fd_.get(), Bytes(&byte, 1));
    }
    return result.lost();
  }

 private:
  os::Fd fd_;
};

const std::string kIntroduction = "\x00\xCE\xF7\x85\x3C"s;

struct TcpStoreTest : testing::Test {
  std::unique_ptr<TcpStoreServer> server = start_server();
  TcpStore good = client_of(*server);  // connects when it is used
};

TEST_F(TcpStoreTest, answers_byte_for_byte_like_torchs) {
  RawClient client(*server);
  client.send(kIntroduction);
  client.send("\x01\x02\0\0\0\0\0\0\0/a\x03\0\0\0\0\0\0\0xyz"s);
  client.send("\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a"s);
  EXPECT_EQ(client.receive(1), "\0"s);
  client.send("\x03\x02\0\0\0\0\0\0\0/a"s);
  EXPECT_EQ(client.receive(11), "\x03\0\0\0\0\0\0\0xyz"s);
  client.send("\x04\x02\0\0\0\0\0\0\0/n\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  EXPECT_EQ(client.receive(8), "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  client.send("\x03\x02\0\0\0\0\0\0\0/n"s);
  EXPECT_EQ(client.receive(10), "\x02\0\0\0\0\0\0\0-2"s);
  client.send("\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/b"s);
  EXPECT_EQ(client.receive(2), "\0\1"s);
  client.send("\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/b\x0C"s);
  EXPECT_EQ(client.receive(1), "\1"s);
  EXPECT_TRUE(client.ping());
}

TEST(TcpStoreWithoutRetries, gives_up_a_store_that_closes_the_connection_or_refuses_it) {
  os::Fd listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
  const std::uint16_t port = os::local_port(listener).take_or_throw();
  TcpStoreOptions options = options_at(port, seconds(3600));
  options.retries = false;
  TcpStore store(options);
  std::thread closing([&] {
    os::wait_ready(listener, os::Direction::read, soon(), kClock).take_or_throw();
    os::accept_connection(listener).take_or_throw().reset();
  });
  EXPECT_FALSE(caught([&] { store.add("n", 1); }).ok());
  closing.join();
  listener.reset();
  EXPECT_FALSE(caught([&] { store.add("n", 1); }).ok());
}

TEST_F(TcpStoreTest, accepts_requests_in_single_bytes) {
  RawClient client(*server);
  for (const char byte : kIntroduction + "\x04\x02\0\0\0\0\0\0\0/n\x07\0\0\0\0\0\0\0"s)
    client.send(std::string(1, byte));
  EXPECT_EQ(client.receive(8), "\x07\0\0\0\0\0\0\0"s);
}

TEST_F(TcpStoreTest, drops_clients_that_break_the_protocol_and_serves_the_rest) {
  good.set("key", "value");
  for (const std::string& bytes : {
           "GET / HTTP/1.1\r\n\r\n"s,                                      // no introduction
           "\x01\x02\0\0\0\0\0\0\0/a"s,                                    // a request before the introduction
           "\x00\xCE\xF7\x85\x3D"s,                                        // the wrong number
           kIntroduction + kIntroduction,                                  // twice
           kIntroduction + "\x02"s,                                        // an unsupported query
           kIntroduction + "\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s,        // a key without end
           kIntroduction + "\x03\x02\0\0\0\0\0\0\0/z"s,                    // get of a missing key
           kIntroduction + "\x04\x04\0\0\0\0\0\0\0/key\1\0\0\0\0\0\0\0"s,  // add to a text value
       }) {
    RawClient bad(*server);
    bad.send(bytes);
    EXPECT_TRUE(bad.is_dropped());
  }
  EXPECT_EQ(good.get("key", seconds(10)), "value");
}

std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

// Each stranger requests 7 MiB and takes the first 8 bytes.
TEST_F(TcpStoreTest, a_value_that_strangers_request_and_do_not_read_exists_once) {
  good.set("a", std::string(kMaxValueBytes, 'x'));
  EXPECT_EQ(good.add("n", 0), 0);  // the set has arrived
  const std::string get = "\x03\x02\0\0\0\0\0\0\0/a"s;
  const std::size_t before = resident_bytes();
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 50; ++i) {
    crowd.push_back(std::make_unique<RawClient>(*server));
    crowd.back()->send(kIntroduction + get + get + get + get + get + get + get);
    EXPECT_EQ(crowd.back()->receive(8), "\0\0\x10\0\0\0\0\0"s);
  }
  EXPECT_LT(resident_bytes() - before, std::size_t{32} << 20);
  EXPECT_EQ(good.add("n", 1), 1);
}

TEST_F(TcpStoreTest, a_client_that_reads_late_gets_every_answer_in_order) {
  good.set("a", std::string(kMaxValueBytes, 'x'));
  EXPECT_EQ(good.add("n", 1), 1);  // the set has arrived
  RawClient late(*server);
  late.send(kIntroduction);
  constexpr int kAsked = 20;
  for (char i = 0; i < kAsked; ++i) late.send("\x0D"s + i + "\0\0\0\x03\x02\0\0\0\0\0\0\0/a"s);
  for (char i = 0; i < kAsked; ++i) {
    ASSERT_EQ(late.receive(12), i + "\0\0\0\0\0\x10\0\0\0\0\0"s);
    ASSERT_EQ(late.receive(kMaxValueBytes), std::string(kMaxValueBytes, 'x'));
  }
}

// A job's store, which accepts only what its ranks write.
struct JobStoreTest : testing::Test {
  std::unique_ptr<TcpStoreServer> server =
      TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, 2)).take_or_throw();
};

TcpStore own_client_of(TcpStoreServer& server) { return TcpStore(options_at(server.port()), server.take_own_client()); }

std::string card(std::uint64_t token) {
  return encode_record({.world = 2, .token = token, .process = "w", .card = "c"});
}

TEST_F(JobStoreTest, a_jobs_store_drops_clients_that_write_what_no_rank_writes) {
  auto rank_0 = own_client_of(*server);
  EXPECT_EQ(rank_0.add("qccl/job/0/generation", 1), 1);
  for (const StoreRequest& forged : {
           StoreRequest{.query = Query::set, .keys = {"/key"}, .value = "value"},
           StoreRequest{.query = Query::add, .keys = {"/qccl/job/0/generation"}, .number = 1},
           StoreRequest{.query = Query::set, .keys = {"/qccl/job/0/generation"}, .value = "7"},
           StoreRequest{.query = Query::set, .keys = {"/qccl/job/0/1/card/1"}, .value = "no record"},
           StoreRequest{.query = Query::set, .keys = {"/qccl/job/0/1/open"}, .value = "me"},
       }) {
    RawClient stranger(*server);
    stranger.send(kIntroduction + encode_request(forged));
    EXPECT_TRUE(stranger.is_dropped());
  }
  RawClient endless(*server);
  endless.send(kIntroduction + "\x01\x02\0\0\0\0\0\0\0/a\0\0\x10\0\0\0\0\0"s);
  endless.send(std::string(StoreRules::kMaxRequestBytes, 'x'));
  EXPECT_TRUE(endless.is_dropped());
  EXPECT_EQ(rank_0.add("qccl/job/0/generation", 0), 1);
  EXPECT_EQ(rank_0.get("key", milliseconds(0)), std::nullopt);
}

TEST_F(JobStoreTest, a_jobs_store_keeps_the_first_value_of_a_key) {
  auto first = client_of(*server);
  first.set("qccl/job/0/1/card/1", card(1));
  auto rank_0 = own_client_of(*server);
  EXPECT_EQ(rank_0.get("qccl/job/0/1/card/1", seconds(10)), card(1));
  auto second = client_of(*server);
  second.set("qccl/job/0/1/card/1", card(2));
  EXPECT_EQ(second.get("qccl/job/0/1/card/1", seconds(10)), card(1));
  rank_0.set("qccl/job/0/1/card/1", card(3));  // rank 0 may
  EXPECT_EQ(rank_0.get("qccl/job/0/1/card/1", seconds(10)), card(3));
}

TEST_F(JobStoreTest, a_jobs_store_drops_a_client_whose_will_no_rank_leaves) {
  const std::string outcome = encode_outcome({.kind = GenerationResult::Kind::failed, .reason = "it ended"});
  TcpStore rank = client_of(*server);
  rank.leave_will(
      {{"qccl/job/0/1/failure", "it ended"}, {"qccl/job/0/1/outcome", outcome}, {"qccl/job/0/1/closed", "1"}});
  EXPECT_EQ(rank.add("qccl/job/0/generation", 0), 0);
  TcpStore stranger = client_of(*server);
  stranger.leave_will({{"qccl/job/0/generation", "1"}});
  EXPECT_FALSE(caught([&] { stranger.add("qccl/job/0/generation", 0); }).ok());
}

// Keys that begin with "/k" are gone as soon as they have been set.
class Forgetting final : public StoreRules {
 public:
  std::size_t most_bytes() const override { return StoreState::kMaxBytes; }
  bool may_add(Client, std::string_view, std::int64_t) const override { return true; }
  bool may_set(Client, std::string_view, std::string_view) const override { return true; }
  bool may_leave(std::string_view, std::string_view) const override { return true; }
  void has_set(Client, std::string_view, StoreState& state) override { state.erase("/k"); }
};

TEST(TcpStoreServer, drops_a_client_whose_awaited_key_is_gone_before_it_is_answered) {
  const auto server = TcpStoreServer::start("127.0.0.1", 0, std::make_shared<Forgetting>()).take_or_throw();
  RawClient waits(*server);
  waits.send(kIntroduction + encode_request({.query = Query::await, .keys = {"/k"}}));
  EXPECT_TRUE(waits.ping());
  TcpStore other = client_of(*server);
  other.set("k", "v");
  EXPECT_TRUE(waits.is_dropped());
  EXPECT_EQ(other.add("n", 1), 1);
}

TEST_F(JobStoreTest, reading_a_counter_of_a_jobs_store_makes_none) {
  auto stranger = client_of(*server);
  EXPECT_EQ(stranger.add("anything", 0), 0);
  EXPECT_EQ(stranger.get("anything", milliseconds(0)), std::nullopt);
}

const std::string kAwaitOfK = "\x40\x02\0\0\0\0\0\0\0/k"s;
const std::string kValueV = "\0\x01\0\0\0\0\0\0\0v"s;  // and that it exists

TEST_F(JobStoreTest, an_await_is_answered_with_the_value_once_it_exists) {
  auto rank_0 = own_client_of(*server);
  RawClient early(*server), late(*server), impatient(*server);
  for (RawClient* client : {&early, &late, &impatient}) {
    client->send(kIntroduction + encode_request({.query = Query::check, .keys = {wire_key(kServesAwait)}}));
    EXPECT_EQ(client->receive(1), "\0"s);
  }
  impatient.send(kAwaitOfK + "\x0C"s);
  EXPECT_EQ(impatient.receive(1), "\1"s);
  early.send(kAwaitOfK);
  EXPECT_TRUE(early.ping());
  rank_0.set("k", "v");
  EXPECT_EQ(early.receive(10), kValueV);
  late.send(kAwaitOfK);
  EXPECT_EQ(late.receive(10), kValueV);
  late.send("\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k"s);  // a wait, which has no value
  EXPECT_EQ(late.receive(1), "\0"s);
  for (RawClient* client : {&early, &late, &impatient}) EXPECT_TRUE(client->ping());
}

TEST_F(JobStoreTest, get_gives_up_after_its_timeout_and_the_client_still_works) {
  auto client = client_of(*server);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.get("k", milliseconds(1)), std::nullopt);
  EXPECT_EQ(client.add("n", 0), 0);
  own_client_of(*server).set("k", "v");
  EXPECT_EQ(client.get("k", seconds(10)), "v");
  EXPECT_EQ(client.get("k", milliseconds(0)), "v");
}

TEST_F(JobStoreTest, a_second_claim_neither_replaces_the_card_nor_waits) {
  const ClaimRequest first{"qccl/job/0/1/claim/1", "qccl/job/0/1/card/1", card(1), "k"};
  auto holder = client_of(*server);
  EXPECT_EQ(holder.claim(first, milliseconds(1)).count, 1);
  ClaimRequest second = first;
  second.card = card(2);
  auto other = client_of(*server);
  const ClaimAnswer answer = other.claim(second, seconds(60));
  EXPECT_EQ(answer.count, 2);
  EXPECT_EQ(answer.awaited, std::nullopt);
  EXPECT_EQ(other.get("qccl/job/0/1/card/1", seconds(10)), card(1));
}

TEST_F(JobStoreTest, idle_connections_do_not_delay_the_end) {
  RawClient silent(*server), idle(*server);
  idle.send(kIntroduction);
  EXPECT_TRUE(idle.ping());
  const TimePoint begin = kClock.now();
  server->stop(seconds(30));
  EXPECT_LT(kClock.now() - begin, seconds(15));
  EXPECT_TRUE(idle.is_dropped());
}

TEST_F(JobStoreTest, even_a_waiting_stranger_learns_of_the_end) {
  RawClient waiting(*server);
  waiting.send(kIntroduction + encode_request({.query = Query::wait, .keys = {"/k"}}));
  EXPECT_TRUE(waiting.ping());
  server->stop(seconds(30));
  EXPECT_EQ(waiting.receive(1), "\x02"s);
  EXPECT_TRUE(waiting.is_dropped());
}

TEST_F(JobStoreTest, a_crowd_evicts_the_oldest_of_its_own_address_and_no_rank) {
  auto rank_1 = client_of(*server);
  rank_1.set("qccl/job/0/1/card/1", card(1));
  EXPECT_EQ(rank_1.add("n", 0), 0);  // the set has arrived
  RawClient elsewhere(connection_from("127.0.0.2", server->port()));
  elsewhere.send(kIntroduction);
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (std::size_t i = 0; i < TcpStoreServer::kMaxStrangers + 3; ++i) {
    crowd.push_back(std::make_unique<RawClient>(*server));
    if (i % 2 == 1) continue;  // silent
    crowd.back()->send(kIntroduction);
    EXPECT_TRUE(crowd.back()->ping());
  }
  EXPECT_TRUE(crowd.front()->is_dropped());
  EXPECT_TRUE(crowd.back()->ping());
  EXPECT_TRUE(elsewhere.ping());
  EXPECT_EQ(client_of(*server).get("qccl/job/0/1/card/1", seconds(10)), card(1));
  EXPECT_EQ(rank_1.get("qccl/job/0/1/card/1", seconds(10)), card(1));
}

TEST(TcpStoreServer, drops_strangers_when_their_time_is_up_but_no_rank_and_none_that_waits) {
  const auto server =
      TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, 2), {}, milliseconds(500))
          .take_or_throw();
  auto rank_1 = client_of(*server);
  rank_1.set("qccl/job/0/1/card/1", card(1));
  RawClient waits(*server), introduced(*server), slow(*server), silent(*server);
  waits.send(kIntroduction + "\x06\x01\0\0\0\0\0\0\0\x12\0\0\0\0\0\0\0/qccl/job/0/1/open"s);
  introduced.send(kIntroduction);
  slow.send(kIntroduction.substr(0, 3));
  for (RawClient* stranger : {&introduced, &slow, &silent}) EXPECT_TRUE(stranger->is_dropped());
  EXPECT_EQ(rank_1.get("qccl/job/0/1/card/1", seconds(10)), card(1));
  TcpStore own({.host = "", .deadline = soon(), .clock = &kClock}, server->take_own_client());
  own.set("qccl/job/0/1/open", "");
  EXPECT_EQ(waits.receive(1), "\0"s);
}

TEST(TcpStoreServer, a_unix_socket_accepts_no_other_user) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  const std::string name = "qccl-test/" + std::to_string(os::random_nonce());
  auto server = TcpStoreServer::start_local(name).take_or_throw();
  os::OtherUser other([&] {
    auto socket = os::connect_unix_abstract(name);
    if (!socket) return false;
    static_cast<void>(os::write_some(socket->get(), std::as_bytes(std::span(kIntroduction))));
    return RawClient(std::move(*socket)).is_dropped();
  });
  EXPECT_TRUE(other.succeeded());
  TcpStore own({.host = "", .deadline = soon(), .clock = &kClock, .socket = name});
  EXPECT_EQ(own.add("n", 1), 1);
}

TEST(TcpStore, refuses_a_unix_socket_of_another_user_and_names_both) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  const std::string name = "qccl-test/" + std::to_string(os::random_nonce());
  os::OtherUser other([&] {
    auto listener = os::listen_unix_abstract(name);
    return listener.ok() && os::wait_ready(*listener, os::Direction::read, soon(), kClock).ok();
  });
  TcpStore client({.host = "", .deadline = soon(), .clock = &kClock, .socket = name});
  expect_failure(caught([&] { client.add("n", 1); }), ErrorKind::invalid_argument,
                 "belongs to user 65534, this process to user 0");
}

TEST_F(TcpStoreTest, a_will_sets_missing_keys_when_its_client_has_ended) {
  good.set("first", "old");
  {
    TcpStore client = client_of(*server);
    client.leave_will({{"replaced", ""}});
    client.leave_will({{"first", "will"}, {"second", "will"}});
    client.add("n", 1);
    EXPECT_EQ(good.get("second", seconds(0)), std::nullopt);
  }
  EXPECT_EQ(good.get("second", seconds(30)), "will");
  EXPECT_EQ(good.get("first", seconds(0)), "old");
  EXPECT_EQ(good.get("replaced", seconds(0)), std::nullopt);
}

TEST_F(TcpStoreTest, reading_a_counter_makes_none) {
  EXPECT_EQ(good.add("n", 0), 0);
  EXPECT_EQ(good.get("n", seconds(0)), std::nullopt);
}

TEST_F(TcpStoreTest, a_will_that_was_withdrawn_does_nothing) {
  {
    TcpStore later = client_of(*server);
    later.leave_will({{"second", "will"}});
    later.add("n", 1);
    TcpStore client = client_of(*server);
    client.leave_will({{"first", "will"}});
    client.leave_will({});
    client.add("n", 1);
  }
  EXPECT_EQ(good.get("second", seconds(30)), "will");
  EXPECT_EQ(good.get("first", seconds(0)), std::nullopt);
}

TEST_F(TcpStoreTest, random_bytes_disturb_no_other_client) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = round % 2 == 0 ? kIntroduction : ""s;
    for (int i = 0; i < 64; ++i) bytes += static_cast<char>(random() % 3 == 0 ? random() : random() % 14);
    RawClient(*server).send(bytes);
    EXPECT_EQ(good.add("rounds", 1), round + 1);
  }
}

TEST_F(TcpStoreTest, lingers_until_its_clients_have_left) {
  auto client = std::make_unique<TcpStore>(client_of(*server));
  client->set("key", "last word");
  EXPECT_EQ(client->add("n", 0), 0);  // the set has arrived: the client is no stranger
  std::promise<void> stopping;
  auto stopped = std::async(std::launch::async, [&] {
    stopping.set_value();
    server->stop(seconds(20));
  });
  stopping.get_future().wait();
  EXPECT_EQ(client->get("key", seconds(10)), "last word");
  client.reset();
  stopped.get();
}

TEST_F(TcpStoreTest, keys_and_values_are_bytes_and_large_ones_arrive) {
  auto other = client_of(*server);
  std::string value(kMaxValueBytes, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31);
  good.set("with\0zero"s, value);
  good.set("empty", "");
  EXPECT_EQ(other.get("with\0zero"s, seconds(10)), value);
  EXPECT_EQ(other.get("empty", seconds(10)), "");
}

TEST_F(TcpStoreTest, add_is_atomic_over_clients) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      auto client = client_of(*server);
      for (int n = 0; n < 250; ++n) client.add("n", 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(client_of(*server).add("n", 0), 1000);
}

TEST_F(TcpStoreTest, get_waits_for_another_clients_set) {
  auto waiting = std::async(std::launch::async, [&] { return client_of(*server).get("later", seconds(20)); });
  auto other = client_of(*server);
  EXPECT_EQ(other.get("later", milliseconds(0)), std::nullopt);
  other.set("later", "now");
  EXPECT_EQ(waiting.get(), "now");
}

TEST_F(TcpStoreTest, get_gives_up_after_its_timeout_and_the_client_still_works) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(good.get("never", milliseconds(1)), std::nullopt);
  EXPECT_EQ(good.add("n", 3), 3);
  good.set("never", "came");
  EXPECT_EQ(good.get("never", milliseconds(0)), "came");
}

// The first number and the two checks that follow it.
const std::size_t kIntroductionBytes =
    kIntroduction.size() + 2 * (1 + 8 + 8) + wire_key(kServesAwait).size() + wire_key(kServesWills).size();

// A server simulated by the test, whose answer to the wait crosses the client's cancellation.
TEST(TcpStore, a_key_that_appears_as_its_wait_is_cancelled_is_found) {
  auto listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
  TcpStore client(options_at(os::local_port(listener).take_or_throw()));
  auto value = std::async(std::launch::async, [&] { return client.get("k", milliseconds(1)); });
  os::wait_ready(listener, os::Direction::read, soon(), kClock).take_or_throw();
  RawClient peer(std::move(*os::accept_connection(listener).take_or_throw()));
  peer.receive(kIntroductionBytes);
  peer.send("\1\1"s);
  EXPECT_EQ(peer.receive(19), "\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k"s);
  EXPECT_EQ(peer.receive(1), "\x0C"s);
  peer.send("\0\1"s);
  EXPECT_EQ(peer.receive(11), "\x03\x02\0\0\0\0\0\0\0/k"s);
  peer.send("\x01\0\0\0\0\0\0\0v"s);
  EXPECT_EQ(value.get(), "v");
}

// The same with a server that knows await. It answers nothing before it has all that the client can send without an
// answer.
TEST(TcpStore, counters_and_claim_take_one_round_trip_each) {
  auto listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
  TcpStore client(options_at(os::local_port(listener).take_or_throw()));
  auto answer = std::async(std::launch::async, [&] {
    EXPECT_EQ(client.counters({"n", "m"}), (std::vector<std::int64_t>{1, 0}));
    return client.claim({"claim", "card", "me", "k"}, milliseconds(1));
  });
  os::wait_ready(listener, os::Direction::read, soon(), kClock).take_or_throw();
  RawClient peer(std::move(*os::accept_connection(listener).take_or_throw()));
  peer.receive(kIntroductionBytes + 2 * (1 + 8 + 2 + 8));
  peer.send("\0\1\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"s);
  peer.receive((1 + 8 + 6 + 8) + (1 + 8 + 5 + 8 + 2));
  EXPECT_EQ(peer.receive(11), kAwaitOfK);
  peer.send("\1\0\0\0\0\0\0\0"s);
  EXPECT_EQ(peer.receive(1), "\x0C"s);
  peer.send(kValueV + "\1"s);
  EXPECT_EQ(answer.get().awaited, "v");
}

TEST(TcpStore, connects_to_a_server_that_starts_later) {
  const auto port = start_server()->port();
  auto value = std::async(std::launch::async, [&] { return TcpStore(options_at(port)).add("n", 1); });
  auto server = start_server(port);
  EXPECT_EQ(value.get(), 1);
}

TEST(TcpStore, no_server_by_the_deadline_names_the_address) {
  const auto port = start_server()->port();
  TcpStore client(options_at(port, milliseconds(50)));
  const auto failed = caught([&] { client.set("key", "value"); });
  for (const std::string& text : {"127.0.0.1:" + std::to_string(port), "refused"s, "MASTER_ADDR"s}) {
    expect_failure(failed, ErrorKind::deadline_exceeded, text);
  }
}

TEST(TcpStore, another_listener_is_not_taken_for_a_store) {
  auto listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
  TcpStore client(options_at(os::local_port(listener).take_or_throw(), milliseconds(50)));
  expect_failure(caught([&] { client.add("n", 1); }), ErrorKind::deadline_exceeded, "can't reach");
}

TEST_F(TcpStoreTest, waits_long_for_the_next_server_after_an_orderly_end) {
  ManualClock time;
  TcpStore client({.host = "127.0.0.1", .port = server->port(), .deadline = TimePoint() + seconds(60), .clock = &time});
  EXPECT_EQ(client.add("n", 1), 1);
  auto waiting = std::async(std::launch::async, [&] { return caught([&] { client.get("never", seconds(20)); }); });
  server->stop(seconds(20));
  expect_failure(waiting.get(), ErrorKind::peer_lost, "lost the store");
  time.advance(TcpStore::kVanishedLimit * 2);
  server = start_server(server->port());
  EXPECT_EQ(client.add("n", 1), 1);
}

TEST_F(TcpStoreTest, retries_a_vanished_server_only_briefly) {
  ManualClock time;
  TcpStore client({.host = "127.0.0.1", .port = server->port(), .deadline = TimePoint() + seconds(60), .clock = &time});
  client.set("card", "of a rank");
  EXPECT_EQ(client.add("n", 1), 1);
  server.reset();
  expect_failure(caught([&] { client.add("n", 1); }), ErrorKind::peer_lost, "lost the store");
  time.advance(TcpStore::kVanishedLimit);
  expect_failure(caught([&] { client.add("n", 1); }), ErrorKind::peer_lost, "vanished");
}

TEST_F(TcpStoreTest, refuses_requests_for_which_the_server_would_drop_it) {
  const auto long_key = caught([&] { good.set(std::string(kMaxKeyBytes, 'k'), ""); });
  const auto long_value = caught([&] { good.set("k", std::string(kMaxValueBytes + 1, 'v')); });
  expect_failure(long_key, ErrorKind::invalid_argument, "store key of 4096 bytes");
  expect_failure(long_value, ErrorKind::invalid_argument, "with a value of 1048577");
  EXPECT_EQ(good.add("n", 1), 1);
}

}  // namespace
}  // namespace qccl::bootstrap
