#include "extras/window/signal_queue.h"

#include <gtest/gtest.h>

namespace qccl::comm {
namespace {

using internal::WorkState;

constexpr TimePoint at(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

std::shared_ptr<WorkState> await(SignalQueue& queue, int from, TimePoint deadline = kForever) {
  auto work = internal::make_work();
  const bool ended = queue.await(from, {work, deadline});
  EXPECT_EQ(ended, work->done());
  return work;
}

internal::SharedFailure failure(const char* message) {
  return std::make_shared<const ErrorInfo>(ErrorInfo{.message = message});
}

ErrorInfo late(int from, std::uint64_t received) {
  return {.message = std::to_string(from) + ":" + std::to_string(received)};
}

std::string message_of(const std::shared_ptr<WorkState>& work) {
  return !work->done() ? "waits" : work->failure() == nullptr ? "" : work->failure()->message;
}

TEST(SignalQueue, signal_is_taken_by_one_call_and_kept_without_one) {
  SignalQueue queue(3);
  EXPECT_FALSE(queue.add(1));
  EXPECT_FALSE(queue.add(1));
  EXPECT_TRUE(await(queue, 1)->done());
  EXPECT_FALSE(await(queue, 2)->done()) << "the signals are of rank 1";
  EXPECT_TRUE(await(queue, 1)->done());
  EXPECT_FALSE(await(queue, 1)->done());
}

TEST(SignalQueue, oldest_call_takes_the_signal) {
  SignalQueue queue(1);
  const auto first = await(queue, 0);
  const auto second = await(queue, 0);
  EXPECT_TRUE(queue.add(0));
  EXPECT_TRUE(first->done() && !second->done());
  EXPECT_TRUE(queue.add(0));
  EXPECT_TRUE(second->done());
  EXPECT_FALSE(queue.add(0));
}

TEST(SignalQueue, call_that_is_late_takes_no_signal) {
  SignalQueue queue(2);
  queue.add(1);
  await(queue, 1);
  const auto early = await(queue, 1, at(5));
  const auto patient = await(queue, 1, at(7));
  EXPECT_EQ(queue.next_deadline(), at(5));
  EXPECT_FALSE(queue.expire(at(4), late));
  EXPECT_TRUE(queue.expire(at(5), late));
  EXPECT_EQ(message_of(early), "1:1");
  EXPECT_EQ(message_of(patient), "waits");
  EXPECT_EQ(queue.next_deadline(), at(7));
  EXPECT_TRUE(queue.add(1));
  EXPECT_EQ(message_of(patient), "");
  EXPECT_EQ(queue.next_deadline(), kForever);
}

TEST(SignalQueue, end_of_a_sender_fails_its_calls_once_its_signals_are_taken) {
  SignalQueue queue(2);
  const auto other = await(queue, 1);
  const auto waiting = await(queue, 0);
  EXPECT_TRUE(queue.end(0, failure("closed")));
  EXPECT_EQ(message_of(waiting), "closed");
  EXPECT_EQ(message_of(await(queue, 0)), "closed");
  EXPECT_EQ(message_of(other), "waits");
  queue.add(1);
  queue.add(1);
  queue.end(1, failure("closed"));
  EXPECT_EQ(message_of(other), "");
  EXPECT_EQ(message_of(await(queue, 1)), "") << "it had come before";
  EXPECT_EQ(message_of(await(queue, 1)), "closed");
}

TEST(SignalQueue, first_failure_ends_all_calls) {
  SignalQueue queue(2);
  queue.add(0);
  const auto waiting = await(queue, 1);
  EXPECT_EQ(queue.failure(), nullptr);
  EXPECT_TRUE(queue.fail(failure("first")));
  EXPECT_FALSE(queue.fail(failure("second")));
  EXPECT_EQ(message_of(waiting), "first");
  EXPECT_EQ(message_of(await(queue, 0)), "first") << "even if its signal had come";
  EXPECT_EQ(queue.failure()->message, "first");
}

}  // namespace
}  // namespace qccl::comm
