#include "work/completion_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <vector>

namespace qccl::torch_binding {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20000};

// A task that runs until it is told to go on.
struct HeldTask {
  void begin_in(CompletionPool& pool) {
    pool.expect();
    pool.push([this] {
      started.set_value();
      go_on.get_future().wait();
      ended = true;
    });
    started.get_future().wait();
  }

  std::promise<void> started;
  std::promise<void> go_on;
  std::atomic<bool> ended = false;
};

TEST(CompletionPool, runs_every_task_once) {
  CompletionPool pool;
  std::atomic<int> ran = 0;
  for (int i = 0; i < 1000; ++i) {
    pool.expect();
    pool.push([&] { ++ran; });
  }
  EXPECT_TRUE(pool.drain(kLong));
  EXPECT_EQ(ran, 1000);
}

TEST(CompletionPool, tasks_that_wait_for_later_tasks_do_not_deadlock) {
  CompletionPool pool;
  constexpr int kDepth = 200;
  std::vector<std::promise<void>> ended(kDepth);
  for (int i = 0; i < kDepth; ++i) {
    pool.expect();
    pool.push([&ended, i] {
      if (i + 1 < kDepth) ended[i + 1].get_future().wait();
      ended[i].set_value();
    });
  }
  EXPECT_TRUE(pool.drain(kLong));
}

TEST(CompletionPool, drain_waits_for_tasks_that_are_announced_only) {
  CompletionPool pool;
  pool.expect();
  EXPECT_FALSE(pool.drain(milliseconds(20)));
  pool.push([] {});
  EXPECT_TRUE(pool.drain(kLong));
}

TEST(CompletionPool, stop_ends_the_threads_and_runs_nothing_afterwards) {
  CompletionPool pool;
  HeldTask task;
  task.begin_in(pool);
  EXPECT_FALSE(pool.stop(milliseconds(20))) << "a task still runs";
  task.go_on.set_value();
  EXPECT_TRUE(pool.stop(kLong));
  EXPECT_TRUE(task.ended);
  pool.expect();
  pool.push([] { FAIL() << "ran after stop()"; });
}

TEST(CompletionPool, a_task_may_drop_the_last_reference_to_its_pool) {
  auto pool = std::make_shared<CompletionPool>();
  std::promise<void> ran;
  pool->expect();
  CompletionPool& used = *pool;
  used.push([pool = std::move(pool), &ran]() mutable {
    pool.reset();
    ran.set_value();
  });
  ran.get_future().wait();
}

TEST(CompletionPool, destroying_the_pool_lets_queued_tasks_finish) {
  std::vector<std::promise<void>> ran(50);
  {
    CompletionPool pool;
    for (auto& promise : ran) {
      pool.expect();
      pool.push([&promise] { promise.set_value(); });
    }
  }
  for (auto& promise : ran) EXPECT_EQ(promise.get_future().wait_for(kLong), std::future_status::ready);
}

TEST(CompletionPool, end_waits_for_the_tasks_of_a_pool_that_is_gone) {
  HeldTask task;
  CompletionPool::Threads threads;
  {
    CompletionPool pool;
    threads = pool.threads();
    task.begin_in(pool);
  }
  auto stopped = std::async(std::launch::async, [&] { CompletionPool::end(threads, kLong); });
  EXPECT_EQ(stopped.wait_for(milliseconds(20)), std::future_status::timeout) << "a task still runs";
  task.go_on.set_value();
  stopped.get();
  EXPECT_TRUE(task.ended);
}

TEST(CompletionPool, forked_child_can_drop_the_pool_while_threads_of_the_parent_wait) {
  auto pool = std::make_unique<CompletionPool>();
  pool->expect();
  pool->push([] {});
  ASSERT_TRUE(pool->drain(kLong));
  const pid_t child = fork();
  if (child == 0) {
    pool->expect();
    pool->push([] {});
    const bool drained = pool->drain(kLong) && pool->stop(kLong);
    pool.reset();
    _exit(drained ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace qccl::torch_binding
