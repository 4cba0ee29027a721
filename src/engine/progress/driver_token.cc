#include "engine/progress/driver_token.h"

#include "base/log.h"

namespace qccl::engine {

// Acquire: pairs with release(), so that this holder sees all that earlier holders did.
bool DriverToken::take_from(std::uint32_t& seen) {
  return word_.compare_exchange_weak(seen, (seen | kTaken) & ~kWork, std::memory_order_acquire,
                                     std::memory_order_relaxed);
}

bool DriverToken::try_take() {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  while ((seen & kTaken) == 0) {
    if (take_from(seen)) return true;
  }
  return false;
}

bool DriverToken::take_unless(const std::function<bool()>& done, TimePoint deadline) {
  if (done()) return false;
  if (try_take()) return true;
  // Acquire: pairs with notify_waiters(). Of these two operations on the word the second sees the first.
  if ((word_.fetch_add(kWaiter, std::memory_order_acq_rel) & kSleeping) != 0) wake_holder_();
  std::unique_lock lock(mutex_);
  bool has_taken = false;
  bool in_time = true;
  while (!done() && !(has_taken = try_take()) && in_time) {
    if (deadline == kForever) {
      released_.wait(lock);
    } else {
      in_time = released_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    }
  }
  // The progress thread was not woken while this thread waited.
  const std::uint32_t waiting = word_.fetch_sub(kWaiter, std::memory_order_relaxed);
  QCCL_CHECK(waiting >= kWaiter);
  const std::uint32_t left = waiting - kWaiter;
  if (needs_driving(left)) parked_.notify_one();
  return has_taken;
}

// Relaxed: the inbox has a lock of its own.
bool DriverToken::announce_action() {
  const std::uint32_t before = word_.fetch_or(kAction, std::memory_order_relaxed);
  if ((before & kSleeping) != 0) wake_holder_();
  return (before & kTaken) != 0;
}

void DriverToken::release(bool has_work, TokenUse use) {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  QCCL_CHECK((seen & kTaken) != 0 && (seen & (kSleeping | kWork)) == 0);
  const std::uint32_t left = (use == TokenUse::question ? 0 : kUsed) | (has_work ? kWork : 0);
  // Release: pairs with take_from().
  while (!word_.compare_exchange_weak(seen, (seen & ~kTaken) | left, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
  if (seen >= kWaiter) return wake(released_);
  if ((has_work || (seen & kAction) != 0) && use != TokenUse::post_and_return) wake(parked_);
}

// The lock comes between a sleeper's look at the word and its sleep, or before the look.
void DriverToken::wake(std::condition_variable& sleepers) {
  { const std::lock_guard lock(mutex_); }
  sleepers.notify_all();
}

// The actions are in the inbox before their announcement; clearing it first can only cause an idle look.
bool DriverToken::take_announcement() {
  return has_announcement() && (word_.fetch_and(~kAction, std::memory_order_relaxed) & kAction) != 0;
}

bool DriverToken::try_sleep(bool in_background) {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  QCCL_CHECK((seen & kTaken) != 0);
  do {
    if ((seen & kAction) != 0 || (in_background && gives_way(seen))) return false;
  } while (!word_.compare_exchange_weak(seen, seen | kSleeping, std::memory_order_relaxed));
  return true;
}

// Release: pairs with the acquire in take_unless(). A thread that counts itself too late to be seen here sees what was
// done before.
void DriverToken::notify_waiters() {
  if (word_.fetch_or(0, std::memory_order_acq_rel) >= kWaiter) wake(released_);
}

bool DriverToken::take_in_background(Nanoseconds idle_check_interval) {
  std::unique_lock lock(mutex_);
  while (true) {
    std::uint32_t seen = word_.load(std::memory_order_relaxed);
    if ((seen & kStopping) != 0) return false;
    if (needs_driving(seen) || (is_left_alone(seen) && (seen & kUsed) == 0)) {
      if (take_from(seen)) return true;
      continue;
    }
    word_.fetch_and(~kUsed, std::memory_order_relaxed);
    parked_.wait_for(lock, idle_check_interval, [this] {
      const std::uint32_t word = word_.load(std::memory_order_relaxed);
      return (word & kStopping) != 0 || needs_driving(word);
    });
  }
}

void DriverToken::stop() {
  if ((word_.fetch_or(kStopping, std::memory_order_relaxed) & kSleeping) != 0) wake_holder_();
  wake(parked_);
}

}  // namespace qccl::engine
