// The sending end of a lane: takes free slots, passes them to the receiver, gets them back.
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

// Small slots that data leaves to control frames: credits must not wait behind what they allow.
inline constexpr std::size_t kControlSlots = 8;

// A large slot is taken again when this many have come back since, or as many as there are: its lines have left the
// receiver's caches by then, from which each would be fetched, and still lie in those that both share. On a Zen 4 an
// all_reduce of 1 MiB takes 64 us so and 141 with 1 (bench/peers).
inline constexpr std::size_t kReuseDistance = 6;
// Ranks that take turns on a core share its caches: the slot that came back last is the one that lies there. With 6 the
// same call of 4 ranks on 2 cores takes 700 us, with 1 it takes 290.
inline constexpr std::size_t kReuseDistanceOnSharedCores = 1;

// Which slots are free is private to the sender: a list per class, in the order in which they came back. One thread.
// The lane's memory must outlive it.
class LaneSender {
 public:
  LaneSender(const Lane& lane, std::size_t reuse_distance);

  // Room for a frame of up to `max_bytes`, at most kMaxFrameBytes; empty if no slot of its class is
  // free: then the receiver rings for returns from now on, if this rank sleeps. At most one
  // reservation at a time.
  Bytes reserve(std::size_t max_bytes, TrafficClass traffic);
  // Passes the reserved slot with its first `actual_bytes` to the receiver; 0 takes it back.
  void commit(std::size_t actual_bytes);

  // Whether slots came back since a reserve() in vain. Says so once: the caller is expected to
  // try again, or not to want a slot any more.
  bool slots_came_back();

  // What the receiver did wrong, if anything: a lane with a fault is not to be used any more.
  const std::string& fault() const { return fault_; }

 private:
  bool take_returns();
  bool may_take(SlotClass from, TrafficClass traffic) const;
  void set_starved(bool starved);
  std::uint32_t take_free(SlotClass from);
  std::vector<std::uint16_t>& free_slots(SlotClass of) { return free_[static_cast<std::size_t>(of)]; }

  static constexpr std::uint32_t kNoSlot = kMaxSlots;

  Lane lane_;
  std::size_t reuse_distance_;
  RingWriter descriptors_;
  RingReader returns_;
  std::vector<std::uint16_t> free_[kSlotClasses];
  std::bitset<kMaxSlots> away_;  // passed to the receiver and not back
  std::uint32_t reserved_ = kNoSlot;
  bool starved_ = false;
  std::string fault_;
};

}  // namespace qccl::shm
