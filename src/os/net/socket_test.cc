#include "os/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <vector>

namespace qccl::os {
namespace {

using namespace std::chrono_literals;

const SteadyClock steady;
TimePoint soon() { return steady.now() + 20s; }  // never reached unless something is broken

Result<Fd> accept_within(const Fd& listener) {
  for (;;) {
    auto ready = wait_ready(listener, Direction::read, soon(), steady);
    if (!ready) return ready.failure();
    if (!*ready) return Failure(ErrorKind::deadline_exceeded, "nobody connected");
    auto accepted = accept_connection(listener);
    if (!accepted) return accepted.failure();
    if (accepted->has_value()) return std::move(**accepted);
  }
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
  auto listener = listen_tcp(GetParam().listen, 0);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  auto port = local_port(*listener);
  ASSERT_TRUE(port.ok());
  ASSERT_NE(*port, 0);
  auto dialled = connect_tcp(GetParam().connect, *port, soon(), steady);
  ASSERT_TRUE(dialled.ok()) << dialled.error().message;
  auto accepted = accept_within(*listener);
  ASSERT_TRUE(accepted.ok());
  for (const Fd* fd : {&*listener, &*dialled, &*accepted}) EXPECT_TRUE(non_blocking_and_close_on_exec(*fd));
  expect_echo(*dialled, *accepted);
  expect_echo(*accepted, *dialled);
  EXPECT_FALSE(peer_address(*accepted).empty());
}

INSTANTIATE_TEST_SUITE_P(Socket, TcpFamilies,
                         ::testing::Values(Family{"127.0.0.1", "127.0.0.1"}, Family{"::1", "::1"},
                                           Family{"127.0.0.1", "localhost"}, Family{"", "127.0.0.1"},
                                           Family{"", "::1"}));

TEST(Socket, nothing_to_accept_is_nothing) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  auto accepted = accept_connection(*listener);
  ASSERT_TRUE(accepted.ok());
  EXPECT_FALSE(accepted->has_value());
}

TEST(Socket, a_taken_port_is_resource_exhausted_and_named) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  auto port = local_port(*listener);
  const auto second = listen_tcp("127.0.0.1", *port);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::resource_exhausted);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(*port)), std::string::npos);
  EXPECT_NE(second.error().message.find("Address already in use"), std::string::npos);
}

TEST(Socket, listening_on_a_name_is_invalid_argument) {
  const auto listener = listen_tcp("no address", 0);
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().kind, ErrorKind::invalid_argument);
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
  const auto dialled = connect_tcp("127.0.0.1", closed.port, kForever, steady);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().kind, ErrorKind::peer_lost);
  EXPECT_NE(dialled.error().message.find("Connection refused"), std::string::npos);
}

TEST(Socket, retrying_a_refused_connection_ends_at_the_deadline_with_the_reason) {
  const auto closed = refusing_port();
  ASSERT_NE(closed.port, 0);
  const auto dialled = connect_tcp("127.0.0.1", closed.port, steady.now() + 20ms, steady, IfRefused::retry);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().kind, ErrorKind::deadline_exceeded);
  EXPECT_NE(dialled.error().message.find("Connection refused"), std::string::npos);
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

TEST(Socket, a_name_that_does_not_resolve_is_invalid_argument) {
  const auto dialled = connect_tcp("no-such-host.invalid", 1, soon(), steady);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(dialled.error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST(Socket, reading_exactly_stops_at_the_deadline_and_says_how_far_it_came) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  std::array<std::byte, 4> bytes{};
  ASSERT_EQ(write_some(pair->first.get(), ConstBytes(bytes).first(3)).bytes, 3u);
  const auto status = read_exactly(pair->second, bytes, steady.now() + 5ms, steady);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::deadline_exceeded);
  EXPECT_EQ(status.error().message, "3 of 4 bytes received before the deadline");
}

TEST(Socket, reading_exactly_from_a_closed_peer_is_peer_lost) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  pair->first.reset();
  std::array<std::byte, 4> bytes{};
  const auto status = read_exactly(pair->second, bytes, soon(), steady);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::peer_lost);
}

TEST(Socket, exact_reads_and_writes_move_more_than_the_socket_holds) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  std::vector<std::byte> sent(4 << 20), got(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  bool written = false;
  std::thread writer([&] { written = write_exactly(pair->first, sent, soon(), steady).ok(); });
  EXPECT_TRUE(read_exactly(pair->second, got, soon(), steady).ok());
  writer.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(got, sent);
}

TEST(ReservedPort, is_given_to_nobody_but_who_listens_on_it) {
  auto held = reserve_tcp_port();
  ASSERT_TRUE(held.ok());
  const std::uint16_t port = local_port(*held).value();
  auto other = reserve_tcp_port();
  ASSERT_TRUE(other.ok());
  EXPECT_NE(local_port(*other).value(), port);
  EXPECT_TRUE(listen_tcp("127.0.0.1", port).ok());
  EXPECT_TRUE(listen_tcp("", port).ok());
}

}  // namespace
}  // namespace qccl::os
