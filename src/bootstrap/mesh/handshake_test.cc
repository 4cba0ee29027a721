// The two sides of a connection in one thread, over real sockets of this host.
#include "bootstrap/mesh/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "bootstrap/mesh/connectors.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "os/test_user.h"

namespace qccl::bootstrap {
namespace {

// False if the socket did not take it at once. A new socket always does.
bool send_hello(const os::Fd& socket, const wire::Hello& hello) {
  std::array<std::byte, wire::kHelloBytes> bytes;
  wire::encode_hello(hello, bytes.data());
  return os::write_some(socket.get(), bytes).bytes == bytes.size();
}

// Rank 1 listens; other ranks and strangers connect.
class HandshakeTest : public testing::Test {
 protected:
  explicit HandshakeTest(const ConnectionPolicy& of_dialler = {}) : dialler(poller, time, hello_of(3), of_dialler) {}

  void SetUp() override {
    allow_many_descriptors();
    start();
  }

  void start() {
    Listeners listeners{os::listen_tcp("127.0.0.1", 0).take_or_throw(), os::listen_unix_abstract(name).take_or_throw()};
    port = os::local_port(listeners.tcp).take_or_throw();
    acceptor.start(std::move(listeners), hello_of(1), {}).take_or_throw();
  }

  DialTarget target() const { return {.rank = 1, .unix_name = name, .addresses = {"127.0.0.1"}, .port = port}; }

  // Serves every event that is ready now or within `limit`.
  void turn(Nanoseconds limit = milliseconds(10)) {
    dialler.turn().take_or_throw();
    for (const auto& event : poller.wait(limit)) {
      if (owner_of(event.token) == SocketOwner::acceptor) {
        acceptor.ready(index_of(event.token)).take_or_throw();
      } else {
        dialler.ready(index_of(event.token), event.writable).take_or_throw();
      }
    }
    for (auto& peer : acceptor.take_peers()) accepted.push_back(std::move(peer));
    for (auto& peer : dialler.take_peers()) dialled.push_back(std::move(peer));
  }

  void turn_until_connected(std::size_t peers) {
    const TimePoint limit = soon();
    while (accepted.size() < peers || dialled.size() < peers) {
      turn();
      ASSERT_LT(kClock.now(), limit) << accepted.size() << " accepted, " << dialled.size() << " dialled";
    }
  }

  // Runs the acceptor until it has closed `socket`.
  bool is_dropped(const os::Fd& socket) {
    const TimePoint limit = soon();
    while (!os::peer_closed(socket.get()) && kClock.now() < limit) turn();
    return os::peer_closed(socket.get());
  }

  os::Fd stranger() { return os::connect_tcp("127.0.0.1", port, soon(), kClock).take_or_throw(); }

  ManualClock time;  // for deadlines; passes them only if a test advances it
  os::Poller poller = os::Poller::create().take_or_throw();
  Acceptor acceptor{poller, time};
  Dialler dialler;
  std::uint16_t port = 0;
  const std::string name = "qccl-handshake-test-" + std::to_string(os::process_id());
  std::vector<PeerSocket> accepted, dialled;
};

TEST_F(HandshakeTest, joins_over_the_unix_socket_and_then_tcp) {
  dialler.add(target());
  turn_until_connected(2);
  EXPECT_EQ(dialled[0].kind, SocketKind::local);
  EXPECT_EQ(dialled[1].kind, SocketKind::tcp);
  for (const auto& peer : accepted) {
    EXPECT_EQ(peer.rank, 3);
    EXPECT_EQ(peer.confirm, peer.kind == SocketKind::tcp ? ConfirmByte::beside_local : ConfirmByte::alone);
  }
  for (const auto& peer : dialled) EXPECT_EQ(peer.rank, 1);
}

TEST_F(HandshakeTest, connects_by_tcp_alone_where_no_process_has_the_unix_name) {
  auto elsewhere = target();
  elsewhere.unix_name = "qccl-of-another-network-namespace";
  dialler.add(elsewhere);
  turn_until_connected(1);
  EXPECT_EQ(dialled[0].kind, SocketKind::tcp);
  EXPECT_EQ(accepted[0].confirm, ConfirmByte::alone);
}

// Rank 3 wants three connections, rank 1 one.
class ConnectionsTest : public HandshakeTest {
 protected:
  ConnectionsTest() : HandshakeTest({.told = 3}) {}

  static std::vector<std::uint16_t> indices(const std::vector<PeerSocket>& peers) {
    std::vector<std::uint16_t> found;
    for (const PeerSocket& peer : peers) found.push_back(peer.index);
    std::ranges::sort(found);
    return found;
  }
};

TEST_F(ConnectionsTest, the_larger_number_wanted_is_made_at_the_address_that_answered) {
  auto several = target();
  several.unix_name.clear();
  several.addresses = {"127.0.0.2", "127.0.0.1"};
  dialler.add(several);
  turn_until_connected(3);
  const std::vector<std::uint16_t> expected = {0, 1, 2};
  EXPECT_EQ(indices(dialled), expected);
  EXPECT_EQ(indices(accepted), expected);
  for (const auto& peer : dialled) EXPECT_EQ(os::peer_address(peer.socket.socket()), "127.0.0.1");
  for (const auto& peer : accepted) EXPECT_EQ(peer.count, 3);
}

TEST_F(ConnectionsTest, beside_a_unix_socket_one_is_enough) {
  dialler.add(target());
  turn_until_connected(2);
  for (const auto& peer : dialled) EXPECT_EQ(peer.count, 1);
  for (const auto& peer : accepted) EXPECT_EQ(peer.count, 1);
}

TEST_F(HandshakeTest, a_further_connection_over_a_unix_socket_is_dropped) {
  const os::Fd socket = os::connect_unix_abstract(name).take_or_throw();
  auto hello = hello_of(3, 1);
  hello.wanted_connections = 2;
  hello.connection = 1;
  ASSERT_TRUE(send_hello(socket, hello));
  EXPECT_TRUE(is_dropped(socket));
  EXPECT_TRUE(accepted.empty());
}

TEST_F(HandshakeTest, an_address_that_refuses_gives_way_to_the_next) {
  auto several = target();
  several.unix_name.clear();
  several.addresses = {"127.0.0.2", "127.0.0.3", "127.0.0.1"};
  dialler.add(several);
  turn_until_connected(1);
  EXPECT_EQ(os::peer_address(dialled[0].socket.socket()), "127.0.0.1");
}

TEST_F(HandshakeTest, a_rank_that_refuses_at_every_address_for_long_has_ended) {
  auto dead = target();
  dead.addresses = {"127.0.0.2", "127.0.0.3"};
  dead.unix_name = "qccl-nobody";
  dialler.add(dead);
  const TimePoint limit = soon();
  const auto given_up = caught([&] {
    while (kClock.now() < limit) {
      turn();
      time.advance(milliseconds(100));
    }
  });
  expect_failure(given_up, ErrorKind::peer_lost, "rank 1 can't be reached at 127.0.0.3:");
  EXPECT_GE(time.now(), TimePoint() + Dialler::kRefusedLimit);
}

TEST_F(HandshakeTest, a_dropped_dialler_retries) {
  auto proxy = os::listen_tcp("127.0.0.2", 0).take_or_throw();
  DialTarget flaky{.rank = 1, .addresses = {"127.0.0.2"}, .port = os::local_port(proxy).take_or_throw()};
  dialler.add(flaky);
  for (int dropped = 0; dropped < 3;) {
    turn();
    time.advance(milliseconds(100));
    dropped += os::accept_connection(proxy).take_or_throw().has_value() ? 1 : 0;
  }
  EXPECT_EQ(dialled.size(), 0u);
  ASSERT_EQ(dialler.reasons().size(), 1u);
  EXPECT_NE(dialler.reasons()[0].find("during the handshake"), std::string::npos) << dialler.reasons()[0];
}

TEST_F(HandshakeTest, a_thousand_strangers_at_both_sockets_do_not_keep_a_rank_out) {
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(stranger());
    crowd.push_back(os::connect_unix_abstract(name).take_or_throw());
    turn(Nanoseconds::zero());
  }
  dialler.add(target());
  turn_until_connected(2);
  EXPECT_TRUE(is_dropped(crowd.front()));
  EXPECT_FALSE(os::peer_closed(crowd.back().get()));
}

TEST_F(HandshakeTest, strangers_leave_a_rank_most_of_its_descriptors) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{os::open_file_count() + 80, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  acceptor.start({}, hello_of(1), {}).take_or_throw();  // ends the first listeners
  start();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 30; ++i) crowd.push_back(stranger());
  EXPECT_TRUE(is_dropped(crowd.front()));
}

TEST_F(HandshakeTest, a_silent_stranger_is_dropped_at_its_time_limit) {
  const os::Fd silent = stranger();
  while (accepted.empty()) {  // a later connection has been served: so this one has been accepted
    if (dialler.reasons().empty()) dialler.add(target());
    turn();
  }
  acceptor.expire();
  EXPECT_FALSE(os::peer_closed(silent.get()));
  time.advance(Acceptor::kHandshakeLimit);
  acceptor.expire();
  EXPECT_TRUE(is_dropped(silent));
}

TEST_F(HandshakeTest, hellos_that_do_not_belong_here_are_dropped) {
  auto other_job = hello_of(3, 1), other_world = hello_of(3, 1), other_version = hello_of(3, 1);
  other_job.job = kTestJob + 1;
  other_world.world = 5;
  other_version.version = wire::kWireVersion + 1;
  for (const auto& hello :
       {other_job, other_world, other_version, hello_of(3, 2), hello_of(0, 1), hello_of(1, 1), hello_of(4, 1)}) {
    const os::Fd socket = stranger();
    ASSERT_TRUE(send_hello(socket, hello));
    EXPECT_TRUE(is_dropped(socket));
  }
  EXPECT_TRUE(accepted.empty());
}

// The other user knows the job and everything else that a rank sends.
TEST_F(HandshakeTest, another_user_is_dropped_at_the_unix_socket_and_the_rank_connects) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  os::OtherUser other([&] {
    auto socket = os::connect_unix_abstract(name);
    if (!socket) return false;
    static_cast<void>(send_hello(*socket, hello_of(3, 1)));
    std::byte answer;
    os::wait_ready(*socket, os::Direction::read, soon(), kClock).take_or_throw();
    return os::read_some(socket->get(), Bytes(&answer, 1)).lost();
  });
  while (!other.has_ended()) turn();
  EXPECT_TRUE(other.succeeded());
  EXPECT_TRUE(accepted.empty());
  dialler.add(target());
  turn_until_connected(2);
}

TEST_F(HandshakeTest, a_unix_socket_of_another_user_is_refused_and_names_both) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  auto forged = target();
  forged.unix_name += "-forged";
  os::OtherUser other([&] {
    auto listener = os::listen_unix_abstract(forged.unix_name);
    return listener.ok() && os::wait_ready(*listener, os::Direction::read, soon(), kClock).ok();
  });
  const TimePoint limit = soon();
  while (os::abstract_listeners(forged.unix_name).empty() && kClock.now() < limit) std::this_thread::yield();
  dialler.add(forged);
  const Status refused = dialler.turn();
  expect_failure(refused, ErrorKind::misuse, "belongs to user 65534, this process to user 0");
  EXPECT_EQ(refused.error().peer, 1);
}

TEST_F(HandshakeTest, a_hello_without_confirmation_does_not_count) {
  os::Fd socket = stranger();
  ASSERT_TRUE(send_hello(socket, hello_of(3, 1)));
  std::byte answer[wire::kHelloBytes];
  for (std::size_t got = 0; got < sizeof(answer);) {
    turn();
    got += os::read_some(socket.get(), Bytes(answer).subspan(got)).bytes;
  }
  EXPECT_EQ(wire::decode_hello(answer)->rank, 1u);
  EXPECT_TRUE(accepted.empty());
  const std::byte nonsense{7};
  ASSERT_EQ(os::write_some(socket.get(), ConstBytes(&nonsense, 1)).bytes, 1u);
  EXPECT_TRUE(is_dropped(socket));
  EXPECT_TRUE(accepted.empty());
}

}  // namespace
}  // namespace qccl::bootstrap
