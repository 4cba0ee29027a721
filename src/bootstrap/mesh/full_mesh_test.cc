// Complete start-ups: ranks are threads, everything else is real (store server, sockets of this host).
#include "bootstrap/mesh/full_mesh.h"

#include <gtest/gtest.h>

#include <future>
#include <random>

#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/store/tcp_store.h"
#include "bootstrap/store/tcp_store_server.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

struct Rank {
  int rank = 0;
  int world = 2;
  TransportChoice transport = TransportChoice::automatic;
  milliseconds timeout = seconds(60);
  std::string job = "job";
  std::uint32_t restart = 0;
  int connections = 1;
  std::string key = "";  // empty: none
  bool encrypts = true;
};

secure::Protection protection_of(const Rank& rank) {
  if (rank.key.empty()) return {};
  std::string text = rank.key;
  return {std::make_shared<secure::Key>(secure::Key::from_text(text, "test").take_or_throw()), rank.encrypts};
}

FullMeshOptions options_of(const Rank& rank, std::uint16_t port) {
  FullMeshOptions options;
  options.launch = {.rank = rank.rank,
                    .world = rank.world,
                    .master_address = "127.0.0.1",
                    .master_port = port,
                    .job = rank.job,
                    .restart = rank.restart};
  options.transport = rank.transport;
  options.location = os::address_text("at 127.0.0.1", port);
  options.connections.told = rank.connections;
  options.protection = protection_of(rank);
  options.deadline = soon(rank.timeout);
  options.timeout = rank.timeout;
  return options;
}

using Started = std::vector<std::future<Result<PeerSockets>>>;

// A store that processes other than the ranks may also use.
class Host {
 public:
  std::uint16_t port() const { return server_->port(); }
  TcpStore client(Nanoseconds timeout = seconds(60)) const {
    return TcpStore({.host = "127.0.0.1", .port = port(), .deadline = soon(timeout), .clock = &kClock});
  }
  // Blocks until `key` of the job "job" exists.
  void await(const std::string& key) const {
    ASSERT_TRUE(client().get("qccl/job/0/" + key, seconds(60)).has_value()) << key;
  }
  std::string value(const std::string& key) const { return *client().get("qccl/job/0/" + key, seconds(60)); }

  Result<PeerSockets> connect(const Rank& rank) const {
    auto store = client(rank.timeout);
    return connect_full_mesh(&store, options_of(rank, port()), kClock);
  }
  std::future<Result<PeerSockets>> start(const Rank& rank) const {
    return std::async(std::launch::async, [this, rank] { return connect(rank); });
  }
  Started start_all(Rank rank) const {
    Started ranks;
    for (rank.rank = 0; rank.rank < rank.world; ++rank.rank) ranks.push_back(start(rank));
    return ranks;
  }

 private:
  std::unique_ptr<TcpStoreServer> server_ = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
};

// Waits for the ranks. Each sends every other rank its number over every connection, which shows that each end is the
// right one and that nothing is left over in it. Returns the digest of their job.
std::uint64_t expect_joined(Started started, std::size_t tcp = 1, bool local = true, bool encrypted = false) {
  std::vector<PeerSockets> ranks;
  for (auto& rank : started) ranks.push_back(rank.get().take_or_throw());
  for (PeerSockets& rank : ranks) {
    for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
      for (const secure::Stream& stream : rank.tcp[peer]) EXPECT_EQ(stream.is_encrypted(), encrypted);
    }
  }
  const auto each_pair = [&](auto&& action) {
    for (std::size_t self = 0; self < ranks.size(); ++self) {
      for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
        if (self == peer) continue;
        for (secure::Stream& stream : ranks[self].tcp[peer]) action(stream, self, peer);
        EXPECT_EQ(ranks[self].tcp[peer].size(), tcp);
        EXPECT_EQ(ranks[self].local[peer].valid(), local);
      }
    }
  };
  each_pair([](secure::Stream& stream, std::size_t self, std::size_t peer) {
    ASSERT_TRUE(stream.valid()) << self << " to " << peer;
    const auto number = static_cast<std::byte>(self);
    stream.write_exactly(ConstBytes(&number, 1), soon(), kClock).take_or_throw();
  });
  each_pair([](secure::Stream& stream, std::size_t, std::size_t peer) {
    std::byte number{};
    stream.read_exactly(Bytes(&number, 1), soon(), kClock).take_or_throw();
    EXPECT_EQ(static_cast<std::size_t>(number), peer);
    EXPECT_TRUE(stream.read_some(Bytes(&number, 1)).would_block);
  });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.job, ranks[0].job);
    EXPECT_EQ(rank.local_ranks, static_cast<int>(ranks.size()));
    EXPECT_NE(rank.processes[0].find("process "), std::string::npos);
  }
  return ranks[0].job;
}

struct FullMesh : testing::Test {
  Host host;
};

TEST(FullMeshOfEachTransport, joins_every_rank_with_every_other) {
  using enum TransportChoice;
  for (const TransportChoice transport : {automatic, shm, tcp}) {
    for (int world = 1; world <= 8; ++world) {
      Host host;
      expect_joined(host.start_all({.world = world, .transport = transport}), transport == shm ? 0 : 1,
                    transport != tcp);
    }
  }
}

TEST(FullMeshOfEachTransport, has_as_many_connections_as_wanted_where_no_memory_is_shared) {
  using enum TransportChoice;
  for (const TransportChoice transport : {automatic, tcp}) {
    for (const int connections : {2, 16}) {
      Host host;
      expect_joined(host.start_all({.world = 4, .transport = transport, .connections = connections}),
                    transport == tcp ? static_cast<std::size_t>(connections) : 1, transport != tcp);
    }
  }
}

// Leaves the card of a rank that listens but never dials or answers.
struct Mute {
  Mute(const Host& host, int rank, int world, bool listens) : store(host.client()) {
    listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
    const AddressCard card{.transport = TransportChoice::tcp,
                           .port = os::local_port(listener).take_or_throw(),
                           .addresses = {"127.0.0.1"}};
    if (!listens) listener.reset();
    KeySpace keys(store, "job", 0, kClock);
    gather_cards(keys, {rank, world, "mute", encode_card(card), ""}, {&kClock, soon(), seconds(30)}).take_or_throw();
  }
  TcpStore store;
  os::Fd listener;
};

TEST_F(FullMesh, a_rank_that_left_its_card_but_does_not_connect_is_named) {
  auto rank_0 = host.start({.rank = 0, .transport = TransportChoice::tcp, .timeout = seconds(2)});
  const Mute rank_1(host, 1, 2, true);
  const auto result = rank_0.get();
  expect_failure(result, ErrorKind::deadline_exceeded, "rank 0 of 2: not all ranks are connected after 2.0 s: rank 1");
  expect_failure(result, ErrorKind::deadline_exceeded, "QCCL_SOCKET_IFNAME");
  EXPECT_EQ(result.error().peer, 1);
}

TEST_F(FullMesh, a_rank_that_left_its_card_but_does_not_answer_is_named) {
  auto rank_1 = host.start({.rank = 1, .transport = TransportChoice::tcp, .timeout = seconds(2)});
  const Mute rank_0(host, 0, 2, true);
  expect_failure(rank_1.get(), ErrorKind::deadline_exceeded, "rank 1 of 2: not all ranks are connected");
}

TEST_F(FullMesh, a_rank_that_left_its_card_and_ended_is_peer_lost_long_before_the_deadline) {
  auto rank_1 = host.start({.rank = 1, .transport = TransportChoice::tcp, .timeout = seconds(60)});
  const Mute rank_0(host, 0, 2, false);
  expect_failure(rank_1.get(), ErrorKind::peer_lost, "rank 1 of 2: rank 0 can't be reached at 127.0.0.1:");
}

TEST_F(FullMesh, a_failure_reaches_ranks_connected_to_the_failed_one) {
  auto rank_1 = host.start({.rank = 1, .world = 3, .transport = TransportChoice::tcp, .timeout = seconds(60)});
  auto rank_2 = host.start({.rank = 2, .world = 3, .transport = TransportChoice::tcp, .timeout = seconds(2)});
  const Mute rank_0(host, 0, 3, true);
  expect_failure(rank_2.get(), ErrorKind::deadline_exceeded, "rank 2 of 3: not all ranks are connected after 2.0 s");
  expect_failure(rank_1.get(), ErrorKind::peer_lost, "rank 1 of 3: the job can't start: rank 2 of 3: not all ranks");
  EXPECT_TRUE(host.value("1/failure").starts_with("rank 2 of 3: not all ranks"));
}

TEST_F(FullMesh, a_failure_reaches_ranks_not_connected_to_the_failed_one) {
  auto rank_0 = host.start({.rank = 0, .transport = TransportChoice::tcp, .timeout = seconds(60)});
  Mute rank_1(host, 1, 2, true);
  KeySpace keys(rank_1.store, "job", 0, kClock);
  report_failure(keys, 1, Failure(ErrorKind::unsupported, "rank 1 of 2:\nno luck").info());
  expect_failure(rank_0.get(), ErrorKind::peer_lost,
                 "rank 0 of 2: the job can't start: rank 1 of 2: no luck (from the store at 127.0.0.1:" +
                     std::to_string(host.port()) + ", which any process that reaches it can write to)");
}

TEST_F(FullMesh, a_second_process_of_a_rank_fails_and_the_job_goes_on) {
  Started ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(host.start({.rank = rank, .world = 3}));
  host.await("1/card/1");
  expect_failure(host.connect({.rank = 1, .world = 3}), ErrorKind::misuse,
                 "rank 1 of 3: another process (" + own_process_text() + ") is rank 1 of this job too");
  ranks.push_back(host.start({.rank = 2, .world = 3}));
  expect_joined(std::move(ranks));
}

TEST_F(FullMesh, two_jobs_on_one_store_do_not_meet) {
  auto one = host.start_all({.world = 3, .job = "a/b"}), other = host.start_all({.world = 3, .job = "a"});
  EXPECT_NE(expect_joined(std::move(one)), expect_joined(std::move(other)));
}

// Like torchrun's store: nothing is deleted between attempts and restarts.
TEST_F(FullMesh, attempts_and_restarts_on_one_store_connect_only_live_ranks) {
  for (const std::uint32_t restart : {0u, 0u, 1u}) expect_joined(host.start_all({.restart = restart}));
}

TEST_F(FullMesh, different_transports_are_an_error_on_both_sides) {
  auto rank_0 = host.start({.rank = 0, .transport = TransportChoice::tcp});
  expect_failure(host.connect({.rank = 1, .transport = TransportChoice::automatic}), ErrorKind::invalid_argument,
                 "rank 1 of 2: the transport is tcp on rank 0 but auto here");
  expect_failure(rank_0.get(), ErrorKind::invalid_argument,
                 "rank 0 of 2: the transport is auto on rank 1 but tcp here");
}

constexpr const char* kKey = "a key of the test's job";

TEST(FullMeshWithKey, joins_every_rank_with_every_other) {
  using enum TransportChoice;
  for (const TransportChoice transport : {automatic, shm, tcp}) {
    for (const bool encrypts : {true, false}) {
      Host host;
      expect_joined(host.start_all({.world = 4, .transport = transport, .key = kKey, .encrypts = encrypts}),
                    transport == shm ? 0 : 1, transport != tcp, encrypts);
    }
  }
}

TEST(FullMeshWithKey, protects_each_of_several_connections) {
  using enum TransportChoice;
  for (const bool encrypts : {true, false}) {
    Host host;
    const Rank rank{.world = 3, .transport = tcp, .connections = 5, .key = kKey, .encrypts = encrypts};
    expect_joined(host.start_all(rank), 5, false, encrypts);
  }
}

// Two ranks' keys, and what rank 0 says; rank 1 reads it.
struct KeysDiffer {
  std::string key_of_0, key_of_1, said;
};

TEST(FullMeshWithKey, another_key_or_none_is_an_error_on_both_sides_at_once) {
  const std::vector<KeysDiffer> cases = {{kKey, "a key of another job....", "has another key than this rank"},
                                         {kKey, "", "has no key, and this rank has one"},
                                         {"", kKey, "has a key, and this rank has none"}};
  for (const auto& [key_of_0, key_of_1, said] : cases) {
    Host host;
    auto rank_0 = host.start({.rank = 0, .timeout = seconds(60), .key = key_of_0});
    const auto of_1 = host.connect({.rank = 1, .timeout = seconds(60), .key = key_of_1});
    const auto of_0 = rank_0.get();
    expect_failure(of_0, ErrorKind::invalid_argument, said);
    expect_failure(of_0, ErrorKind::invalid_argument, "give all ranks the same key (QCCL_KEY_FILE");
    expect_failure(of_1, ErrorKind::invalid_argument, "rank 0 gave up: rank 1 (process");
    expect_failure(of_1, ErrorKind::invalid_argument, said);
  }
}

TEST(FullMeshWithKey, one_that_encrypts_and_one_that_does_not_are_an_error_on_both_sides) {
  Host host;
  auto rank_0 = host.start({.rank = 0, .key = kKey});
  expect_failure(host.connect({.rank = 1, .key = kKey, .encrypts = false}), ErrorKind::invalid_argument,
                 "rank 0 encrypts what it sends and this rank does not: give all ranks the same QCCL_ENCRYPTION");
  expect_failure(rank_0.get(), ErrorKind::invalid_argument, "rank 1 does not encrypt what it sends and this rank does");
}

// A crowd of connections that send nothing, half of a Hello, or nonsense.
class Crowd {
 public:
  void connect(std::uint16_t port, int count) {
    for (int i = 0; i < count; ++i) add(os::connect_tcp("127.0.0.1", port, soon(), kClock).take_or_throw());
  }
  void connect(const std::string& unix_name, int count) {
    for (int i = 0; i < count;) {
      auto socket = os::connect_unix_abstract(unix_name);
      if (!socket) continue;  // its queue is full until the rank has accepted some
      add(std::move(*socket));
      ++i;
    }
  }

 private:
  void add(os::Fd socket) {
    std::array<std::byte, 200> bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random_());
    wire::encode_hello({.rank = 2, .target = 0, .world = 3, .job = random_()}, bytes.data());
    const std::size_t lengths[] = {0, 0, 0, 5, 32, 63, 64, 200};
    const std::size_t length = lengths[sockets_.size() % std::size(lengths)];
    if (sockets_.size() % 2 == 0) bytes[0] = std::byte{0};
    if (length != 0) static_cast<void>(os::write_some(socket.get(), ConstBytes(bytes).first(length)));
    sockets_.push_back(std::move(socket));
  }

  std::mt19937_64 random_{20261121};
  std::vector<os::Fd> sockets_;
};

// While the last rank is late, strangers connect to the store and to both sockets of rank 1.
TEST_F(FullMesh, a_thousand_strangers_at_every_socket_disturb_nothing) {
  allow_many_descriptors();
  Started ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(host.start({.rank = rank, .world = 3}));
  host.await("1/card/1");
  Crowd crowd;
  crowd.connect(host.port(), 1000);

  const auto record = decode_record(host.value("1/card/1")).take_or_throw();
  const AddressCard card = decode_card(record.card).take_or_throw();
  auto at_tcp = std::async(std::launch::async, [&] { Crowd().connect(card.port, 1000); });
  Crowd at_local;
  at_local.connect(card.unix_name, 900);
  at_tcp.get();
  ranks.push_back(host.start({.rank = 2, .world = 3}));
  expect_joined(std::move(ranks));
}

}  // namespace
}  // namespace qccl::bootstrap
