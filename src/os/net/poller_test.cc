#include "os/net/poller.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "os/memory.h"
#include "os/net/socket.h"

namespace qccl::os {
namespace {

using namespace std::chrono_literals;

const std::array<std::byte, 1> kOneByte{};

TEST(Poller, times_out_with_nothing_ready) {
  auto poller = Poller::create();
  ASSERT_TRUE(poller.ok());
  const SteadyClock clock;
  const auto begin = clock.now();
  EXPECT_TRUE(poller->wait(2ms).empty());
  EXPECT_GE(clock.now() - begin, 2ms);
  EXPECT_TRUE(poller->wait(-5s).empty());
}

TEST(Poller, names_what_is_readable_until_it_is_read) {
  auto poller = Poller::create();
  auto bell = create_eventfd();
  ASSERT_TRUE(poller.ok() && bell.ok());
  ASSERT_TRUE(poller->watch(bell->get(), 7).ok());
  ring_eventfd(*bell);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto ready = poller->wait(Nanoseconds::max());
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready[0].token, 7u);
    EXPECT_TRUE(ready[0].readable);
    EXPECT_FALSE(ready[0].writable);
  }
  EXPECT_TRUE(drain_eventfd(*bell));
  EXPECT_FALSE(drain_eventfd(*bell));
  EXPECT_TRUE(poller->wait(0ns).empty());
}

TEST(Poller, watching_again_changes_token_and_interest) {
  auto poller = Poller::create();
  auto pair = socket_pair();
  ASSERT_TRUE(poller.ok() && pair.ok());
  const int fd = pair->first.get();
  ASSERT_TRUE(poller->watch(fd, 1).ok());
  EXPECT_TRUE(poller->wait(0ns).empty());
  ASSERT_TRUE(poller->watch(fd, 2, true).ok());
  const auto ready = poller->wait(0ns);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].token, 2u);
  EXPECT_TRUE(ready[0].writable);
  EXPECT_FALSE(ready[0].readable);
  ASSERT_TRUE(poller->watch(fd, 2, false).ok());
  EXPECT_TRUE(poller->wait(0ns).empty());
}

TEST(Poller, a_closed_peer_makes_its_socket_readable) {
  auto poller = Poller::create();
  auto pair = socket_pair();
  ASSERT_TRUE(poller.ok() && pair.ok());
  ASSERT_TRUE(poller->watch(pair->first.get(), 3).ok());
  pair->second.reset();
  const auto ready = poller->wait(Nanoseconds::max());
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_TRUE(ready[0].readable);
}

TEST(Poller, a_forgotten_descriptor_is_silent) {
  auto poller = Poller::create();
  auto pair = socket_pair();
  ASSERT_TRUE(poller.ok() && pair.ok());
  ASSERT_TRUE(poller->watch(pair->first.get(), 3).ok());
  ASSERT_EQ(write_some(pair->second.get(), kOneByte).bytes, 1u);
  poller->forget(pair->first.get());
  EXPECT_TRUE(poller->wait(0ns).empty());
}

TEST(Poller, a_wake_before_the_wait_ends_it_and_only_it) {
  auto poller = Poller::create();
  ASSERT_TRUE(poller.ok());
  poller->wake();
  poller->wake();
  EXPECT_TRUE(poller->wait(Nanoseconds::max()).empty());
  const SteadyClock clock;
  const auto begin = clock.now();
  EXPECT_TRUE(poller->wait(1ms).empty());
  EXPECT_GE(clock.now() - begin, 1ms);
}

TEST(Poller, another_thread_wakes_a_sleeper) {
  auto poller = Poller::create();
  ASSERT_TRUE(poller.ok());
  std::thread waker([&] { poller->wake(); });
  EXPECT_TRUE(poller->wait(Nanoseconds::max()).empty());
  waker.join();
}

TEST(Poller, watching_a_closed_descriptor_is_an_error_with_the_systems_words) {
  auto poller = Poller::create();
  ASSERT_TRUE(poller.ok());
  const auto status = poller->watch(-1, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::misuse);
  EXPECT_NE(status.error().message.find("Bad file descriptor"), std::string::npos);
}

}  // namespace
}  // namespace qccl::os
