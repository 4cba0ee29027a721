#include "os/net/dial.h"

#include <gtest/gtest.h>

#include "os/net/socket.h"

namespace qccl::os {
namespace {

const SteadyClock kClock;

bool becomes_writable(const Fd& socket) {
  return wait_ready(socket, Direction::write, kClock.now() + std::chrono::seconds(20), kClock).take_or_throw();
}

TEST(Dial, reaches_a_listener_of_either_family) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    auto listener = listen_tcp(address, 0);
    if (!listener && std::string(address) == "::1") GTEST_SKIP() << "this machine has no IPv6";
    const auto port = local_port(*listener).take_or_throw();
    const Fd socket = begin_connect_tcp(address, port).take_or_throw();
    ASSERT_TRUE(becomes_writable(socket));
    EXPECT_TRUE(end_connect_tcp(socket).ok());
    wait_ready(*listener, Direction::read, kClock.now() + std::chrono::seconds(20), kClock).take_or_throw();
    EXPECT_TRUE(accept_connection(*listener).take_or_throw().has_value());
  }
}

TEST(Dial, a_refused_connection_is_peer_lost) {
  const auto port = local_port(listen_tcp("127.0.0.1", 0).take_or_throw()).take_or_throw();
  auto socket = begin_connect_tcp("127.0.0.1", port);
  if (!socket) {
    EXPECT_EQ(socket.error().kind, ErrorKind::peer_lost);
    return;
  }
  ASSERT_TRUE(becomes_writable(*socket));
  EXPECT_EQ(end_connect_tcp(*socket).error().kind, ErrorKind::peer_lost);
}

TEST(Dial, names_are_no_addresses) {
  EXPECT_EQ(begin_connect_tcp("localhost", 1).error().kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace qccl::os
