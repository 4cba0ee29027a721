#include "os/net/poller.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/expect_failure.h"
#include "os/net/socket.h"

namespace qccl::os {
namespace {

using namespace std::chrono_literals;

struct PollerTest : ::testing::Test {
  Poller poller = Poller::create().take_or_throw();
  SocketPair pair = socket_pair().take_or_throw();
  const SteadyClock clock;
};

TEST_F(PollerTest, times_out_with_nothing_ready) {
  const auto begin = clock.now();
  EXPECT_TRUE(poller.wait(2ms).empty());
  EXPECT_GE(clock.now() - begin, 2ms);
  EXPECT_TRUE(poller.wait(-5s).empty());
}

TEST_F(PollerTest, names_what_is_readable_until_it_is_read) {
  const Fd bell = create_eventfd().take_or_throw();
  ASSERT_TRUE(poller.watch(bell.get(), 7).ok());
  ring_eventfd(bell);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto ready = poller.wait(Nanoseconds::max());
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready[0].token, 7u);
    EXPECT_TRUE(ready[0].readable);
    EXPECT_FALSE(ready[0].writable);
  }
  EXPECT_TRUE(drain_eventfd(bell));
  EXPECT_FALSE(drain_eventfd(bell));
  EXPECT_TRUE(poller.wait(0ns).empty());
}

TEST_F(PollerTest, watching_again_changes_token_and_interest) {
  const int fd = pair.first.get();
  ASSERT_TRUE(poller.watch(fd, 1).ok());
  EXPECT_TRUE(poller.wait(0ns).empty());
  ASSERT_TRUE(poller.watch(fd, 2, true).ok());
  const auto ready = poller.wait(0ns);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].token, 2u);
  EXPECT_TRUE(ready[0].writable);
  EXPECT_FALSE(ready[0].readable);
  ASSERT_TRUE(poller.watch(fd, 2, false).ok());
  EXPECT_TRUE(poller.wait(0ns).empty());
}

TEST_F(PollerTest, a_closed_peer_makes_its_socket_readable) {
  ASSERT_TRUE(poller.watch(pair.first.get(), 3).ok());
  pair.second.reset();
  const auto ready = poller.wait(Nanoseconds::max());
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_TRUE(ready[0].readable);
}

TEST_F(PollerTest, a_forgotten_descriptor_is_silent) {
  ASSERT_TRUE(poller.watch(pair.first.get(), 3).ok());
  ASSERT_EQ(write_some(pair.second.get(), std::array<std::byte, 1>{}).bytes, 1u);
  poller.forget(pair.first.get());
  EXPECT_TRUE(poller.wait(0ns).empty());
}

TEST_F(PollerTest, a_wake_before_the_wait_ends_it_and_only_it) {
  poller.wake();
  poller.wake();
  EXPECT_TRUE(poller.wait(Nanoseconds::max()).empty());
  const auto begin = clock.now();
  EXPECT_TRUE(poller.wait(1ms).empty());
  EXPECT_GE(clock.now() - begin, 1ms);
}

TEST_F(PollerTest, another_thread_wakes_a_sleeper) {
  std::thread waker([&] { poller.wake(); });
  EXPECT_TRUE(poller.wait(Nanoseconds::max()).empty());
  waker.join();
}

TEST_F(PollerTest, watching_a_closed_descriptor_is_an_error_with_the_systems_words) {
  expect_failure(poller.watch(-1, 0), ErrorKind::misuse, "Bad file descriptor");
}

}  // namespace
}  // namespace qccl::os
