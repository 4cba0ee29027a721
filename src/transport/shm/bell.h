// Doorbells: a peer rings a sleeping rank through its eventfd; a spinning rank needs no system call.
//
// The sleep word of a rank lies in memory that its peers map. It is odd while the rank sleeps or is about to.
//
//   sleeper (OwnBell)                        ringer (PeerBell)
//   S1  word = odd                           R1  publish (a ring word, a board sequence)
//   S2  full fence                           R2  full fence
//   S3  check everything once more           R3  if word is odd: write the eventfd,
//   S4  epoll_wait if there was nothing          then word: odd -> even, if still the same odd
//
// No wake-up is lost. The two fences are ordered one way or the other. If S2 comes first, R3 sees the store of S1 and
// rings. If R2 comes first, S3 sees the publication of R1 and the rank does not sleep. Without the fences both sides
// could read the old value: a store may pass a later load (Dekker). The time at which the eventfd is written matters in
// neither case: it stays readable.
//
// The ringer rings first and clears the word afterwards. If it is stopped or killed in between, the word stays odd and
// other ranks ring too. The word's number grows, so a late clear cannot clear a later sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/memory.h"
#include "transport/shm/layout.h"

namespace qccl::shm {

// Orders earlier stores before later loads. The thread sanitizer does not model fences; visibility of data never
// depends on this one, only on release and acquire.
inline void full_fence() {
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
}

// A rank's own sleep word. One thread.
class OwnBell {
 public:
  explicit OwnBell(SleepWord& word) : word_(&word) {}

  // S1 and S2. Relaxed: the fence orders it.
  void arm() {
    phase_ |= 1;
    word_->phase.store(phase_, std::memory_order_relaxed);
    full_fence();
  }
  // Relaxed: a ringer that still sees odd rings once for nothing.
  void disarm() {
    phase_ += phase_ & 1;
    word_->phase.store(phase_, std::memory_order_relaxed);
  }

 private:
  SleepWord* word_;
  std::uint32_t phase_ = 0;
};

// A peer's sleep word and eventfd; owns neither. One thread of this rank uses it; other ranks ring the same peer.
class PeerBell {
 public:
  PeerBell(SleepWord& word, const os::Fd& eventfd) : word_(&word), eventfd_(&eventfd) {}

  // Whether the peer sleeps and must be rung. Call this after publishing and full_fence() (R2), which orders the
  // relaxed load, like those of anything else that the sleeper stored before S1, such as whether it waits for slots.
  bool asleep() {
    seen_ = word_->phase.load(std::memory_order_relaxed);
    return (seen_ & 1) != 0;
  }
  // R3, called if asleep(). Relaxed: the kernel notifies the sleeper, which reads the data with acquire.
  void ring() {
    os::ring_eventfd(*eventfd_);
    word_->phase.compare_exchange_strong(seen_, seen_ + 1, std::memory_order_relaxed);
  }

 private:
  SleepWord* word_;
  const os::Fd* eventfd_;
  std::uint32_t seen_ = 0;
};

}  // namespace qccl::shm
