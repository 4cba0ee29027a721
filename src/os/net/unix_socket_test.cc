
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/expect_failure.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "os/test_user.h"

namespace qccl::os {
namespace {

// A name that no other process has.
std::string unique_name() { return "qccl-test-" + std::to_string(random_nonce()); }

TEST(UnixSocket, abstract_names_connect_and_tell_the_peers_process) {
  const std::string name = unique_name();
  const Fd listener = listen_unix_abstract(name).take_or_throw();
  const Fd dialled = connect_unix_abstract(name).take_or_throw();
  const Fd accepted = accept_connection(listener).take_or_throw().value();
  const std::array<std::byte, 1> sent{std::byte{42}};
  std::array<std::byte, 1> got{};
  ASSERT_EQ(write_some(dialled.get(), sent).bytes, 1u);
  ASSERT_EQ(read_some(accepted.get(), got).bytes, 1u);
  EXPECT_EQ(got, sent);
  const auto peer = peer_credentials(accepted).take_or_throw();
  EXPECT_EQ(peer.process, own_credentials().process);
  EXPECT_EQ(peer.user, own_credentials().user);
}

TEST(UnixSocket, both_ends_of_one_user_are_told_so) {
  auto pair = socket_pair().take_or_throw();
  EXPECT_TRUE(check_same_user(pair.first).ok());
  EXPECT_FALSE(check_same_user(Fd(::open("/dev/null", O_RDONLY))).ok());
}

TEST(UnixSocket, another_user_is_named_with_this_one_whoever_runs_the_test) {
  const PeerCredentials own{.process = 7, .user = 1000}, same{.process = 8, .user = 1000};
  const PeerCredentials root{.process = 9, .user = 0}, other{.process = 10, .user = 4'000'000'000};
  EXPECT_TRUE(check_same_user(same, own).ok());
  expect_failure(check_same_user(root, own), ErrorKind::misuse,
                 "process 9 at the other end of the unix socket belongs to user 0, this process to user 1000");
  expect_failure(check_same_user(other, own), ErrorKind::misuse,
                 "belongs to user 4000000000, this process to user 1000");
  expect_failure(check_same_user(own, root), ErrorKind::misuse, "belongs to user 1000, this process to user 0");
}

TEST(UnixSocket, a_dialler_of_another_user_is_named) {
  if (!can_act_as_another()) GTEST_SKIP() << kNeedsRoot;
  const std::string name = unique_name();
  auto listener = listen_unix_abstract(name).take_or_throw();
  const SteadyClock clock;
  OtherUser other([&] { return connect_unix_abstract(name).ok(); });
  const int process = other.process();
  wait_ready(listener, Direction::read, clock.now() + std::chrono::seconds(30), clock).take_or_throw();
  const auto accepted = accept_connection(listener).take_or_throw();
  ASSERT_TRUE(accepted.has_value());
  expect_failure(check_same_user(*accepted), ErrorKind::misuse,
                 "process " + std::to_string(process) +
                     " at the other end of the unix socket belongs to user 65534, this process to user 0");
  EXPECT_TRUE(other.succeeded());
}

TEST(UnixSocket, a_taken_name_and_a_missing_listener_are_told_apart) {
  const std::string name = unique_name();
  expect_failure(connect_unix_abstract(name), ErrorKind::peer_lost);
  Fd listener = listen_unix_abstract(name).take_or_throw();
  expect_failure(listen_unix_abstract(name), ErrorKind::resource_exhausted);
  listener.reset();
  expect_failure(connect_unix_abstract(name), ErrorKind::peer_lost);
}

TEST(UnixSocket, a_name_longer_than_the_kernel_takes_is_invalid_argument) {
  expect_failure(listen_unix_abstract(std::string(108, 'x')), ErrorKind::invalid_argument);
  EXPECT_TRUE(listen_unix_abstract(std::string(90, 'x') + std::to_string(process_id())).ok());
}

TEST(UnixSocket, a_duplicate_outlives_the_original_and_needs_a_socket) {
  auto pair = socket_pair().take_or_throw();
  auto copy = duplicate_socket(pair.first.get()).take_or_throw();
  const int number = pair.first.get();
  pair.first.reset();
  const std::byte sent{7};
  EXPECT_TRUE(write_some(copy.get(), ConstBytes(&sent, 1)).ok());
  std::byte got{};
  EXPECT_TRUE(read_some(pair.second.get(), Bytes(&got, 1)).ok());
  EXPECT_EQ(got, sent);
  expect_failure(duplicate_socket(number), ErrorKind::misuse);
  expect_failure(duplicate_socket(Fd(::open("/dev/null", O_RDONLY)).get()), ErrorKind::misuse);
}

TEST(UnixSocket, listeners_are_found_by_the_beginning_of_their_names_while_they_listen) {
  const std::string prefix = "qccl/test/" + std::to_string(process_id()) + "/";
  EXPECT_TRUE(abstract_listeners(prefix).empty());
  auto first = listen_unix_abstract(prefix + "a").take_or_throw();
  const auto second = listen_unix_abstract(prefix + "b").take_or_throw();
  const auto connection = connect_unix_abstract(prefix + "a").take_or_throw();
  const auto accepted = accept_connection(first).take_or_throw();
  auto names = abstract_listeners(prefix);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{prefix + "a", prefix + "b"}));
  first.reset();
  EXPECT_EQ(abstract_listeners(prefix), std::vector<std::string>{prefix + "b"});
}

TEST(UnixSocket, stopping_a_listener_wakes_the_threads_that_wait_for_it) {
  const SteadyClock clock;
  auto listener = listen_unix_abstract("qccl/test/stop/" + std::to_string(process_id())).take_or_throw();
  bool woken = false;
  std::thread waiter([&] { woken = wait_ready(listener, Direction::read, kForever, clock).ok(); });
  stop_listening(listener);
  waiter.join();
  EXPECT_TRUE(woken);
}

}  // namespace
}  // namespace qccl::os
