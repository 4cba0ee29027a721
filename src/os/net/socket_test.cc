#include "os/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

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

TEST(Socket, of_either_family_connects_and_carries_bytes_both_ways) {
  const std::pair<const char*, const char*> addresses[] = {
      {"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"127.0.0.1", "localhost"}, {"", "127.0.0.1"}, {"", "::1"}};
  for (const auto& [listening, dialling] : addresses) {
    const Fd listener = listen_tcp(listening, 0).take_or_throw();
    const auto port = local_port(listener).take_or_throw();
    ASSERT_NE(port, 0);
    const Fd dialled = connect_tcp(dialling, port, soon(), steady).take_or_throw();
    const Fd accepted = accept_within(listener);
    for (const Fd* fd : {&listener, &dialled, &accepted}) EXPECT_TRUE(non_blocking_and_close_on_exec(*fd));
    expect_echo(dialled, accepted);
    expect_echo(accepted, dialled);
    EXPECT_FALSE(peer_address(accepted).empty());
  }
}

TEST(Socket, the_addresses_that_one_machine_may_have_are_one_network) {
  EXPECT_EQ(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("2001:db8:1:2::"), network_of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(network_of("2001:db8:1:2::"), network_of("2001:db8:1:3::"));
  for (const char* alone : {"192.0.2.1", "::ffff:192.0.2.1", "fe80::1", "fe80::1%eth0", "", "no address"}) {
    EXPECT_EQ(network_of(alone), alone);
  }
}

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
}

TEST(Socket, a_name_without_an_address_is_looked_up_until_the_deadline) {
  const TimePoint deadline = steady.now() + 30ms;
  expect_failure(connect_tcp("no-such-host.invalid", 1, deadline, steady), ErrorKind::deadline_exceeded,
                 "can't find an address for \"no-such-host.invalid\"");
  EXPECT_GE(steady.now(), deadline);
  expect_failure(connect_tcp_once("no-such-host.invalid", 1, soon(), steady), ErrorKind::peer_lost,
                 "no-such-host.invalid");
}

TEST(Socket, connects_to_addresses_in_every_form_that_people_write) {
  const Fd listener = listen_tcp("", 0).take_or_throw();
  const auto port = local_port(listener).take_or_throw();
  std::vector<std::string> hosts = {"[::1]", "localhost.", "127.0.0.1."};
  for (const Interface& interface : list_interfaces("").take_or_throw()) {
    if (!interface.link_local) continue;
    hosts.push_back(interface.address);  // with its zone
    hosts.push_back("[" + interface.address + "]");
  }
  for (const std::string& host : hosts) {
    EXPECT_TRUE(connect_tcp_once(host, port, soon(), steady).ok()) << host;
    EXPECT_TRUE(local_address_towards(host).ok()) << host;
  }
  EXPECT_TRUE(listen_tcp("[::1]", 0).ok());
}

TEST(Socket, only_a_host_that_is_there_refuses) {
  const Fd closed = reserve_tcp_port().take_or_throw();
  const auto port = local_port(closed).take_or_throw();
  EXPECT_TRUE(was_refused(connect_tcp_once("127.0.0.1", port, soon(), steady).error()));
  EXPECT_FALSE(was_refused(connect_tcp_once("no-such-host.invalid", port, soon(), steady).error()));
  EXPECT_FALSE(was_refused(os_failure("can't connect", ENETUNREACH).info()));
}

TEST(Socket, a_refused_connection_is_peer_lost_at_once) {
  const Fd closed = reserve_tcp_port().take_or_throw();
  const auto port = local_port(closed).take_or_throw();
  auto dialled = begin_connect_tcp("127.0.0.1", port);
  if (dialled.ok()) {
    ASSERT_TRUE(wait_ready(*dialled, Direction::write, soon(), steady).take_or_throw());
    expect_failure(end_connect_tcp(*dialled), ErrorKind::peer_lost, "Connection refused");
  } else {
    EXPECT_EQ(dialled.error().kind, ErrorKind::peer_lost);
  }
}

TEST(Socket, a_connection_without_retries_is_there_or_peer_lost_at_once) {
  const Fd listener = listen_tcp("127.0.0.1", 0).take_or_throw();
  const auto port = local_port(listener).take_or_throw();
  const Fd dialled = connect_tcp_once("localhost", port, soon(), steady).take_or_throw();
  expect_echo(dialled, accept_within(listener));
  const Fd closed = reserve_tcp_port().take_or_throw();
  expect_failure(connect_tcp_once("127.0.0.1", local_port(closed).take_or_throw(), kForever, steady),
                 ErrorKind::peer_lost, "Connection refused");
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
  const Fd closed = reserve_tcp_port().take_or_throw();
  const auto port = local_port(closed).take_or_throw();
  expect_failure(connect_tcp("127.0.0.1", port, steady.now() + 20ms, steady), ErrorKind::deadline_exceeded,
                 "Connection refused");
}

TEST(Socket, retrying_finds_a_listener_that_comes_up_late) {
  const Fd later = reserve_tcp_port().take_or_throw();
  const auto port = local_port(later).take_or_throw();
  Result<Fd> dialled = Failure(ErrorKind::misuse, "not run");
  std::thread dialler([&] { dialled = connect_tcp("127.0.0.1", port, soon(), steady); });
  EXPECT_EQ(::listen(later.get(), 1), 0);
  dialler.join();
  EXPECT_TRUE(dialled.ok());
}

TEST(Socket, a_reserved_port_is_of_all_addresses_and_of_those_that_name_it) {
  const Fd reserved = reserve_tcp_port().take_or_throw();
  const auto port = local_port(reserved).take_or_throw();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  const Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(listen_tcp("127.0.0.2", port).ok());
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

TEST(Interfaces, filters_follow_nccls_forms) {
  struct Case {
    const char* filter;
    bool has_eth0;
  };
  for (const auto& [filter, has_eth0] : {Case{"", true},
                                         {"ib,eth", true},
                                         {"ib,en", false},
                                         {"=lo,eth0", true},
                                         {"=eth", false},
                                         {"^docker,eth", false},
                                         {"^docker,lo", true},
                                         {"^=eth0", false},
                                         {"^=eth", true},
                                         {",,ib,", false},
                                         {",eth,", true}}) {
    EXPECT_EQ(interface_matches(filter, "eth0"), has_eth0) << filter;
  }
}

TEST(Interfaces, loopback_is_listed_ipv4_first) {
  const auto found = list_interfaces("=lo").take_or_throw();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().name, "lo");
  EXPECT_EQ(found.front().address, "127.0.0.1");
  EXPECT_TRUE(std::ranges::all_of(found, &Interface::loopback));
}

TEST(Interfaces, excluding_loopback_leaves_the_rest) {
  const auto others = list_interfaces("^lo").take_or_throw();
  EXPECT_LT(others.size(), list_interfaces("").take_or_throw().size());
  EXPECT_TRUE(std::ranges::none_of(others, [](const Interface& each) { return each.name == "lo"; }));
}

TEST(Interfaces, the_route_to_a_loopback_address_starts_there) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    EXPECT_EQ(local_address_towards(address).take_or_throw(), address);
  }
}

TEST(Interfaces, the_route_to_an_unknown_name_may_come_later) {
  expect_failure(local_address_towards("no-such-host.invalid"), ErrorKind::peer_lost);
  const TimePoint deadline = steady.now() + 30ms;
  expect_failure(local_address_towards("no-such-host.invalid", deadline, steady), ErrorKind::peer_lost);
  EXPECT_GE(steady.now(), deadline);
}

}  // namespace
}  // namespace qccl::os
