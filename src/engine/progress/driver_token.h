// The driver token: the right to run the engine, which one thread holds at a time.
//
// The token is one word. While nobody waits, one compare-and-swap takes it and one returns it. A thread that wants
// something sets a bit or counts itself in the same word, and all operations on one word have one order. So either the
// holder sees the request before it returns the token or sleeps, or the requester sees a free token or a sleeping
// holder: no request is lost between them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/clock.h"

namespace qccl::engine {

// What a holder did.
enum class TokenUse {
  drive,
  post_and_return,  // it is coming back in a moment to drive
  question,         // which is no driving: the progress thread's idle checks go on beside such uses
};

// Thread-safe. Takes no memory after its construction.
class DriverToken {
 public:
  // `wake_holder` ends the holder's sleep after try_sleep(), also one that begins only later. Any thread calls it.
  explicit DriverToken(std::function<void()> wake_holder) : wake_holder_(std::move(wake_holder)) {}

  // Takes the token if it is free.
  bool try_take();
  // Blocks until this thread has the token (true), or until `done` holds or the deadline passes (false). `done` is
  // evaluated when the token is returned and after notify_waiters(). The progress thread gives way meanwhile.
  bool take_unless(const std::function<bool()>& done, TimePoint deadline);
  // Asks the holder to run the actions in the inbox. False if nobody holds the token.
  bool announce_action();

  // ---- the holder
  // Returns the token. `has_work`: operations are in flight, for the progress thread. After post_and_return it leaves
  // them to this thread until its next idle check.
  void release(bool has_work, TokenUse use = TokenUse::drive);
  // True after announce_action(), once; the holder then runs the inbox.
  bool take_announcement();
  bool has_announcement() const { return (word_.load(std::memory_order_relaxed) & kAction) != 0; }
  // The progress thread returns the token: another thread waits for it, or stop() was called.
  bool must_give_way() const { return gives_way(word_.load(std::memory_order_relaxed)); }
  // From now on requests wake the holder; false if there is one already. `in_background`: must_give_way() counts too.
  bool try_sleep(bool in_background);
  void end_sleep() { word_.fetch_and(~kSleeping, std::memory_order_relaxed); }
  // Makes the threads in take_unless() evaluate their `done` again.
  void notify_waiters();

  // ---- the progress thread
  // Blocks until the token is free, nobody waits for it and there is something to do: operations in flight, actions in
  // the inbox, or after `idle_check_interval` in which nobody drove. False after stop().
  bool take_in_background(Nanoseconds idle_check_interval);
  void stop();

 private:
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kSleeping = 2;  // the holder, until wake_holder_()
  static constexpr std::uint32_t kAction = 4;    // the inbox has actions
  static constexpr std::uint32_t kWork = 8;      // free, but operations are in flight
  static constexpr std::uint32_t kUsed = 16;     // was held to drive since the progress thread looked
  static constexpr std::uint32_t kStopping = 32;
  static constexpr std::uint32_t kWaiter = 64;  // times the number of threads in take_unless()

  static bool gives_way(std::uint32_t word) { return word >= kStopping; }
  static bool is_left_alone(std::uint32_t word) { return word < kWaiter && (word & kTaken) == 0; }
  static bool needs_driving(std::uint32_t word) { return is_left_alone(word) && (word & (kAction | kWork)) != 0; }
  bool take_from(std::uint32_t& seen);
  void wake(std::condition_variable& sleepers);

  const std::function<void()> wake_holder_;
  // Take and return pair as acquire and release, for the engine's state. The other orders stand where they are used.
  std::atomic<std::uint32_t> word_{0};
  std::mutex mutex_;                  // only for waiting on what follows
  std::condition_variable released_;  // threads in take_unless()
  std::condition_variable parked_;    // the progress thread
};

}  // namespace qccl::engine
