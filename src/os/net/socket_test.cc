#include "os/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "base/expect_failure.h"

namespace qccl::os {
namespace {

using namespace std::chrono_literals;

const SteadyClock steady;
TimePoint soon() { return steady.now() + 20s; }  // never reached unless something is broken

Fd accept_within(const Fd& listener) {
  while (wait_ready(listener, Direction::read, soon(), steady).take_or_throw()) {
    if (auto accepted = accept_connection(listener).take_or_throw()) return std::move(*accepted);
  }
  ADD_FAILURE() << "nobody connected";
  return {};
}

bool non_blocking_and_close_on_exec(const Fd& fd) {
  return (::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) != 0 && (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

void expect_echo(const Fd& a, const Fd& b) {
  const std::array<std::byte, 3> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> got{};
  ASSERT_TRUE(write_exactly(a, sent, soon(), steady).ok());
  ASSERT_TRUE(read_exactly(b, got, soon(), steady).ok());
  EXPECT_EQ(got, sent);
}

struct Family {
  const char* listen;
  const char* connect;
};

class TcpFamilies : public ::testing::TestWithParam<Family> {};

TEST_P(TcpFamilies, connects_and_carries_bytes_both_ways) {
  const Fd listener = listen_tcp(GetParam().listen, 0).take_or_throw();
  const auto port = local_port(listener).take_or_throw();
  ASSERT_NE(port, 0);
  const Fd dialled = connect_tcp(GetParam().connect, port, soon(), steady).take_or_throw();
  const Fd accepted = accept_within(listener);
  for (const Fd* fd : {&listener, &dialled, &accepted}) EXPECT_TRUE(non_blocking_and_close_on_exec(*fd));
  expect_echo(dialled, accepted);
  expect_echo(accepted, dialled);
  EXPECT_FALSE(peer_address(accepted).empty());
}

INSTANTIATE_TEST_SUITE_P(Socket, TcpFamilies,
                         ::testing::Values(Family{"127.0.0.1", "127.0.0.1"}, Family{"::1", "::1"},
                                           Family{"127.0.0.1", "localhost"}, Family{"", "127.0.0.1"},
                                           Family{"", "::1"}));

TEST(Socket, nothing_to_accept_is_nothing) {
  EXPECT_FALSE(accept_connection(listen_tcp("127.0.0.1", 0).take_or_throw()).take_or_throw().has_value());
}

TEST(Socket, a_taken_port_is_resource_exhausted_and_named) {
  const Fd listener = listen_tcp("127.0.0.1", 0).take_or_throw();
  const auto port = local_port(listener).take_or_throw();
  expect_failure(listen_tcp("127.0.0.1", port), ErrorKind::resource_exhausted,
                 address_text("127.0.0.1", port) + ": Address already in use");
}

TEST(Socket, what_is_no_address_is_invalid_argument) {
  expect_failure(listen_tcp("no address", 0), ErrorKind::invalid_argument);
  expect_failure(begin_connect_tcp("localhost", 1), ErrorKind::invalid_argument);
  expect_failure(connect_tcp("no-such-host.invalid", 1, soon(), steady), ErrorKind::invalid_argument,
                 "no-such-host.invalid");
}

// A port without a listener: bound but not listening, so that no other process takes it meanwhile.
struct RefusingPort {
  Fd holder;
  std::uint16_t port = 0;
};
RefusingPort refusing_port() {
  RefusingPort result{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr address{};
  address.sa_family = AF_INET;
  if (::bind(result.holder.get(), &address, 16) == 0) result.port = local_port(result.holder).value();
  return result;
}

TEST(Socket, a_refused_connection_is_peer_lost_at_once) {
  const auto closed = refusing_port();
  ASSERT_NE(closed.port, 0);
  expect_failure(connect_tcp("127.0.0.1", closed.port, kForever, steady), ErrorKind::peer_lost, "Connection refused");
  auto dialled = begin_connect_tcp("127.0.0.1", closed.port);
  if (dialled.ok()) {
    ASSERT_TRUE(wait_ready(*dialled, Direction::write, soon(), steady).take_or_throw());
    expect_failure(end_connect_tcp(*dialled), ErrorKind::peer_lost, "Connection refused");
  } else {
    EXPECT_EQ(dialled.error().kind, ErrorKind::peer_lost);
  }
}

TEST(Socket, a_connection_that_was_begun_reaches_a_listener_of_either_family) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    const Fd listener = listen_tcp(address, 0).take_or_throw();
    const Fd dialled = begin_connect_tcp(address, local_port(listener).take_or_throw()).take_or_throw();
    ASSERT_TRUE(wait_ready(dialled, Direction::write, soon(), steady).take_or_throw());
    EXPECT_TRUE(end_connect_tcp(dialled).ok());
    expect_echo(dialled, accept_within(listener));
  }
}

TEST(Socket, retrying_a_refused_connection_ends_at_the_deadline_with_the_reason) {
  const auto closed = refusing_port();
  ASSERT_NE(closed.port, 0);
  expect_failure(connect_tcp("127.0.0.1", closed.port, steady.now() + 20ms, steady, IfRefused::retry),
                 ErrorKind::deadline_exceeded, "Connection refused");
}

TEST(Socket, retrying_finds_a_listener_that_comes_up_late) {
  auto later = refusing_port();
  ASSERT_NE(later.port, 0);
  Result<Fd> dialled = Failure(ErrorKind::misuse, "not run");
  std::thread dialler([&] { dialled = connect_tcp("127.0.0.1", later.port, soon(), steady, IfRefused::retry); });
  EXPECT_EQ(::listen(later.holder.get(), 1), 0);
  dialler.join();
  EXPECT_TRUE(dialled.ok());
}

TEST(Socket, reading_exactly_stops_at_the_deadline_or_at_end_of_file_and_says_how_far_it_came) {
  auto pair = socket_pair().take_or_throw();
  std::array<std::byte, 4> bytes{};
  ASSERT_EQ(write_some(pair.first.get(), ConstBytes(bytes).first(3)).bytes, 3u);
  expect_failure(read_exactly(pair.second, bytes, steady.now() + 5ms, steady), ErrorKind::deadline_exceeded,
                 "3 of 4 bytes received before the deadline");
  pair.first.reset();
  expect_failure(read_exactly(pair.second, bytes, soon(), steady), ErrorKind::peer_lost);
}

TEST(Socket, exact_reads_and_writes_move_more_than_the_socket_holds) {
  const auto pair = socket_pair().take_or_throw();
  std::vector<std::byte> sent(4 << 20), got(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  bool written = false;
  std::thread writer([&] { written = write_exactly(pair.first, sent, soon(), steady).ok(); });
  EXPECT_TRUE(read_exactly(pair.second, got, soon(), steady).ok());
  writer.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(got, sent);
}

TEST(ReservedPort, goes_only_to_a_listener_that_names_it) {
  const Fd held = reserve_tcp_port().take_or_throw();
  const std::uint16_t port = local_port(held).take_or_throw();
  EXPECT_NE(local_port(reserve_tcp_port().take_or_throw()).take_or_throw(), port);
  EXPECT_TRUE(listen_tcp("127.0.0.1", port).ok());
  EXPECT_TRUE(listen_tcp("", port).ok());
}

}  // namespace
}  // namespace qccl::os
