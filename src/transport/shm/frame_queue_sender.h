// The sending end of a frame queue: takes free slots, passes them to the receiver, and gets them back.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "transport/shm/layout.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace qccl::shm {

// Small slots that data must leave to control frames: credits must not wait behind the data they allow.
inline constexpr std::size_t kControlSlots = 8;

// A large slot is reused only after this many others have come back since, or all of them if there are fewer. By then
// its lines have left the receiver's private caches, from which they would have to be fetched, and are still in the
// shared cache. On a Zen 4 an all_reduce of 1 MiB takes 64 us with 6 and 141 us with 1 (bench/peers/compare).
inline constexpr std::size_t kReuseDistance = 6;
// Ranks that take turns on a core share its caches: the slot that came back last is the one in cache. The same call of
// 4 ranks on 2 cores takes 700 us with 6 and 290 us with 1.
inline constexpr std::size_t kReuseDistanceOnSharedCores = 1;

// The sender's free lists are private: one per slot class, in the order in which the slots came back. One thread. The
// queue's memory must outlive it.
class FrameQueueSender {
 public:
  FrameQueueSender(const FrameQueue& queue, std::size_t reuse_distance);

  // Room for a frame of up to `max_bytes`, at most kMaxFrameBytes. Empty if no slot of its class is free: from then on
  // the receiver rings when it returns slots, if this rank sleeps. At most one reservation at a time.
  Bytes reserve(std::size_t max_bytes, TrafficClass traffic);
  // Passes the reserved slot with its first `actual_bytes` to the receiver; 0 cancels the reservation.
  void commit(std::size_t actual_bytes);

  // Whether slots came back since a reserve() failed. Returns true once: the caller is expected to retry, or to need no
  // slot any more.
  bool slots_came_back();

  // The receiver's violation, if any. A queue with a fault must not be used any more.
  const std::string& fault() const { return fault_; }

 private:
  bool take_returns();
  void set_starved(bool starved);
  std::vector<std::uint16_t>& free_slots(SlotClass of) { return free_[static_cast<std::size_t>(of)]; }

  static constexpr std::uint32_t kNoSlot = kMaxSlots;

  FrameQueue queue_;
  std::size_t reuse_distance_;
  RingWriter descriptors_;
  RingReader returns_;
  std::vector<std::uint16_t> free_[kSlotClasses];
  std::bitset<kMaxSlots> outstanding_;  // passed to the receiver, not yet returned
  std::uint32_t reserved_ = kNoSlot;
  bool starved_ = false;
  std::string fault_;
};

}  // namespace qccl::shm
