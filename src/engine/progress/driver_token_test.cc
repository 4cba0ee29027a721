#include "engine/progress/driver_token.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace qccl::engine {
namespace {

const auto kNever = [] { return false; };
constexpr Nanoseconds kNoIdleCheck = std::chrono::hours(1);
TimePoint soon() { return SteadyClock().now() + std::chrono::seconds(20); }  // passes only if a wake-up is lost

bool eventually(const std::function<bool()>& condition) {
  for (const TimePoint deadline = soon(); !condition(); std::this_thread::yield()) {
    if (SteadyClock().now() >= deadline) return false;
  }
  return true;
}

TEST(DriverToken, has_one_holder_at_a_time) {
  DriverToken token([] {});
  EXPECT_FALSE(token.take_unless([] { return true; }, kForever)) << "not needed";
  EXPECT_TRUE(token.try_take());
  EXPECT_FALSE(token.try_take());
  EXPECT_FALSE(token.take_unless(kNever, SteadyClock().now())) << "the deadline has come";
  token.release(false);
  EXPECT_TRUE(token.take_unless(kNever, SteadyClock().now()));
}

TEST(DriverToken, an_announced_action_keeps_the_holder_awake_until_it_is_taken) {
  int wakes = 0;
  DriverToken token([&] { ++wakes; });
  EXPECT_FALSE(token.announce_action()) << "nobody holds the token";
  EXPECT_TRUE(token.try_take());
  EXPECT_FALSE(token.try_sleep(false));
  EXPECT_TRUE(token.take_announcement());
  EXPECT_FALSE(token.take_announcement());
  EXPECT_TRUE(token.try_sleep(false));
  EXPECT_EQ(wakes, 0);
  EXPECT_TRUE(token.announce_action());
  EXPECT_EQ(wakes, 1);
  token.end_sleep();
  EXPECT_TRUE(token.announce_action());
  EXPECT_EQ(wakes, 1) << "the holder is awake";
}

TEST(DriverToken, a_waiting_thread_makes_the_progress_thread_give_way_and_not_a_user_thread) {
  std::atomic<int> wakes{0};
  DriverToken token([&] { ++wakes; });
  ASSERT_TRUE(token.try_take());
  ASSERT_TRUE(token.try_sleep(true));
  bool has_taken = false;
  std::thread waiter([&] { has_taken = token.take_unless(kNever, soon()); });
  EXPECT_TRUE(eventually([&] { return wakes > 0; }));
  token.end_sleep();
  EXPECT_TRUE(token.must_give_way());
  EXPECT_FALSE(token.try_sleep(true));
  EXPECT_TRUE(token.try_sleep(false));
  token.end_sleep();
  token.release(false);
  waiter.join();
  EXPECT_TRUE(has_taken);
}

TEST(DriverToken, the_progress_thread_takes_it_only_to_drive_what_nobody_else_drives) {
  using Use = TokenUse;
  struct Case {
    bool has_work;
    Use use;
    bool has_action, takes;
  };
  for (const auto [has_work, use, has_action, takes] : {Case{false, Use::drive, false, false},
                                                        {true, Use::drive, false, true},
                                                        {false, Use::drive, true, true},
                                                        {true, Use::question, false, true},
                                                        {true, Use::post_and_return, false, false},
                                                        {true, Use::post_and_return, true, false}}) {
    DriverToken token([] {});
    std::atomic<int> taken{0};
    std::thread progress([&] {
      while (token.take_in_background(kNoIdleCheck)) {
        token.take_announcement();
        ++taken;
        token.release(false);
      }
    });
    EXPECT_TRUE(eventually([&] { return taken == 1; })) << "the token is unused";
    EXPECT_TRUE(token.take_unless(kNever, soon()));
    if (has_action) token.announce_action();
    token.release(has_work, use);
    if (takes) EXPECT_TRUE(eventually([&] { return taken == 2; }));
    token.stop();
    progress.join();
    EXPECT_EQ(taken, takes ? 2 : 1) << has_work << static_cast<int>(use) << has_action;
  }
}

TEST(DriverToken, the_progress_thread_takes_it_when_the_last_waiting_thread_leaves_without_it) {
  DriverToken token([] {});
  ASSERT_TRUE(token.try_take());
  std::atomic<bool> done{false};
  std::thread waiter([&] { EXPECT_FALSE(token.take_unless([&] { return done.load(); }, soon())); });
  EXPECT_TRUE(eventually([&] { return token.must_give_way(); }));
  std::atomic<bool> taken{false};
  std::thread progress([&] { taken = token.take_in_background(kNoIdleCheck); });
  done = true;
  token.release(true);
  EXPECT_TRUE(eventually([&] { return taken.load(); }));
  token.stop();
  waiter.join();
  progress.join();
}

// The waiting thread is slow between its look at `done` and its sleep, and the holder notifies it just then.
TEST(DriverToken, a_notification_is_not_lost_between_a_look_and_the_sleep) {
  DriverToken token([] {});
  ASSERT_TRUE(token.try_take());
  std::atomic<int> looks{0};
  std::atomic<bool> done{false};
  const TimePoint deadline = soon();
  std::thread waiter([&] {
    const auto is_done = [&] {
      const bool seen = done;
      if (++looks == 2) {
        const TimePoint end = SteadyClock().now() + std::chrono::milliseconds(10);
        while (SteadyClock().now() < end) std::this_thread::yield();
      }
      return seen;
    };
    EXPECT_FALSE(token.take_unless(is_done, deadline));
  });
  EXPECT_TRUE(eventually([&] { return looks == 2; }));
  done = true;
  token.notify_waiters();
  waiter.join();
  EXPECT_LT(SteadyClock().now(), deadline);
}

TEST(DriverToken, the_progress_thread_takes_it_after_an_idle_interval) {
  DriverToken token([] {});
  ASSERT_TRUE(token.try_take());
  token.release(false);
  EXPECT_TRUE(token.take_in_background(std::chrono::milliseconds(1)));
}

// A thread that asks something again and again does not keep the progress thread from looking at the peers.
TEST(DriverToken, questions_do_not_count_as_driving) {
  DriverToken token([] {});
  ASSERT_TRUE(token.try_take());
  token.release(false, TokenUse::question);
  std::atomic<bool> taken{false};
  std::thread progress([&] { taken = token.take_in_background(kNoIdleCheck); });
  EXPECT_TRUE(eventually([&] { return taken.load(); }));
  token.stop();
  progress.join();
}

// A model of the engine and its driver. Threads post operations that end after some rounds of progress, drive them or
// leave them to others, and post the actions that some operations need. The holder sleeps when nothing moves, so a lost
// wake-up stops the job until a deadline passes.
class TokenJob {
 public:
  explicit TokenJob(unsigned seed) : seed_(seed) {}

  // False if a wake-up was lost.
  bool run() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([this, i] { make_calls(i); });
    std::thread progress([this] { drive_in_background(); });
    for (std::thread& each : threads) each.join();
    token_.stop();
    progress.join();
    return !is_stuck_;
  }

 private:
  static constexpr unsigned kThreads = 4;
  static constexpr int kCalls = 3000;

  struct Operation {
    unsigned rounds = 0;
    bool needs_action = false;
    std::atomic<bool>* done = nullptr;  // null: no operation, but an action that one needs
  };

  void make_calls(unsigned index) {
    std::minstd_rand random(seed_ * kThreads + index + 1);
    for (int call = 0; call < kCalls && !is_stuck_; ++call) {
      // Half of the threads post the operations that need an action, the others as many actions.
      const bool meets = call % 3 == 0;
      if (meets && index % 2 == 1) post_through_inbox({});
      std::atomic<bool>& done = done_[index];
      done = false;
      const Operation operation{static_cast<unsigned>(random() % 4), meets && index % 2 == 0, &done};
      if (random() % 2 == 0 && token_.try_take()) {
        hold();
        operations_.push_back(operation);
        release();
      } else {
        post_through_inbox(operation);
      }
      wait_for(done, random() % 2 == 0);
    }
  }

  void wait_for(const std::atomic<bool>& done, bool drives) {
    const auto is_done = [&] { return done || is_stuck_; };
    if (!drives) {
      if (!eventually(is_done)) is_stuck_ = true;
      return;
    }
    const TimePoint deadline = soon();
    if (token_.take_unless(is_done, deadline)) {
      hold();
      drive_until(is_done, false);
      release();
    }
    if (!is_done()) is_stuck_ = true;
  }

  void post_through_inbox(const Operation& operation) {
    std::unique_lock lock(inbox_mutex_);
    inbox_.push_back(operation);
    lock.unlock();
    if (token_.announce_action() || !token_.try_take()) return;
    hold();
    release();
  }

  void drive_in_background() {
    while (token_.take_in_background(kNoIdleCheck)) {
      hold();
      drive_until([this] { return token_.must_give_way(); }, true);
      release();
    }
  }

  // ---- the holder

  void hold() {
    EXPECT_EQ(holders_.fetch_add(1), 0);
    run_inbox();
  }

  void release() {
    holders_.fetch_sub(1);
    token_.release(!operations_.empty());
  }

  void run_inbox() {
    if (!token_.take_announcement()) return;
    std::unique_lock lock(inbox_mutex_);
    std::vector<Operation> taken = std::exchange(inbox_, {});
    lock.unlock();
    const auto actions = std::partition(taken.begin(), taken.end(), [](const auto& each) { return each.done; });
    operations_.insert(operations_.end(), taken.begin(), actions);
    actions_ += taken.end() - actions;
  }

  void drive_until(const std::function<bool()>& done, bool in_background) {
    while (!is_stuck_) {
      run_inbox();
      const bool moved = progress();
      if (done()) return;
      if (moved || !token_.try_sleep(in_background)) continue;
      if (!bell_.try_acquire_until(soon())) is_stuck_ = true;
      token_.end_sleep();
    }
  }

  bool progress() {
    bool moved = false;
    const std::size_t ended = std::erase_if(operations_, [&](Operation& operation) {
      if (operation.needs_action && actions_ == 0) return false;
      if (std::exchange(operation.needs_action, false)) --actions_;
      moved = true;
      if (operation.rounds-- > 0) return false;
      operation.done->store(true);
      return true;
    });
    if (ended > 0) token_.notify_waiters();
    return moved;
  }

  const unsigned seed_;
  std::counting_semaphore<> bell_{0};  // of the sleeping holder
  DriverToken token_{[this] { bell_.release(); }};
  std::atomic<bool> is_stuck_{false};
  std::atomic<int> holders_{0};
  std::mutex inbox_mutex_;
  std::vector<Operation> inbox_;
  std::vector<Operation> operations_;  // the holder's
  std::ptrdiff_t actions_ = 0;         // the holder's: not used yet
  std::array<std::atomic<bool>, kThreads> done_{};
};

TEST(DriverToken, no_wake_up_is_lost_between_threads_that_drive_wait_and_post) {
  for (unsigned seed = 0; seed < 8; ++seed) EXPECT_TRUE(TokenJob(seed).run()) << "seed " << seed;
}

}  // namespace
}  // namespace qccl::engine
