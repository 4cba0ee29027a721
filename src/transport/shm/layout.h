// The layout of the memory that the ranks of a host share.
//
// Pair memory, one per pair of ranks: a lane for each direction.
//
// | offset     | bytes      | content                                         |
// |------------|------------|-------------------------------------------------|
// | 0          | lane_bytes | lane from the lower rank to the higher          |
// | lane_bytes | lane_bytes | lane from the higher rank to the lower          |
//
// Lane: frames lie in slots of two sizes. A slot belongs to the sender until a descriptor passes
// it to the receiver, and to the receiver until a return passes it back, so neither ring can
// hold more words than there are slots.
//
// | offset | bytes       | content                                                      |
// |--------|-------------|--------------------------------------------------------------|
// | 0      | 1024        | descriptors (ring.h): sender to receiver, frames in order    |
// | 1024   | 1024        | returns (ring.h): receiver to sender, slots in any order     |
// | 2048   | 4           | starved: 1 while the sender waits for slots                  |
// | 2052   | 2044        | zero                                                         |
// | 4096   | 64 x 4160   | small slots, 0 to 63: control frames and small data          |
// | 270336 | n x 266240  | large slots, 64 to 63 + n: frames of up to kMaxFrameBytes    |
//
// Each polled cache line has one writer. area.h describes the area of a rank, which all its neighbours map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace qccl::shm {

// Both sides must be built with the same version; otherwise the link is refused.
inline constexpr std::uint32_t kLayoutVersion = 3;

inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;

// Address range of a rank's heap (shm_heap.h). Addresses are never used twice; only allocated blocks have pages. This
// is the maximum: a limit on file sizes makes it smaller.
inline constexpr std::uint64_t kHeapBytes = std::uint64_t{1} << 46;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// More than the number of slots, so that a ring is never full.
inline constexpr std::uint32_t kRingWords = 128;

// Words from one writer to one reader: see ring.h.
struct alignas(kCacheLineBytes) Ring {
  std::atomic<std::uint64_t> words[kRingWords];
};

inline constexpr std::uint32_t kSmallSlots = 64;
inline constexpr std::uint32_t kMinLargeSlots = 4;
inline constexpr std::uint32_t kMaxLargeSlots = 16;
inline constexpr std::uint32_t kMaxSlots = kSmallSlots + kMaxLargeSlots;
// A page of payload behind a header.
inline constexpr std::size_t kSmallSlotBytes = 4096 + kFrameHeaderBytes;
inline constexpr std::size_t kLargeSlotBytes = round_up(kMaxFrameBytes, kPageBytes);

struct LaneControl {
  Ring descriptors;
  Ring returns;
  // Written by the sender, read by the receiver only when the sender sleeps: see bell.h.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> starved;
};

inline constexpr std::size_t kSmallSlotsOffset = kPageBytes;
inline constexpr std::size_t kLargeSlotsOffset = kSmallSlotsOffset + kSmallSlots * kSmallSlotBytes;

constexpr std::size_t lane_bytes(std::uint32_t large_slots) {
  return kLargeSlotsOffset + large_slots * kLargeSlotBytes;
}
constexpr std::size_t pair_bytes(std::uint32_t large_slots) { return 2 * lane_bytes(large_slots); }

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);
static_assert(sizeof(Ring) == 1024 && kMaxSlots < kRingWords);
static_assert(offsetof(LaneControl, returns) == 1024 && offsetof(LaneControl, starved) == 2048);
static_assert(sizeof(LaneControl) <= kPageBytes);
static_assert(kSmallSlotBytes == 4160 && kLargeSlotBytes == 266240 && kLargeSlotsOffset == 270336);
static_assert(kSmallSlotBytes % kCacheLineBytes == 0 && kLargeSlotsOffset % kPageBytes == 0);

enum class SlotClass : std::uint8_t { small, large };
inline constexpr std::size_t kSlotClasses = 2;

// One lane, mapped. Does not own it.
class Lane {
 public:
  Lane(std::byte* memory, std::uint32_t large_slots) : memory_(memory), large_slots_(large_slots) {}

  LaneControl& control() const { return *reinterpret_cast<LaneControl*>(memory_); }
  std::uint32_t slots() const { return kSmallSlots + large_slots_; }
  std::uint32_t slots(SlotClass of) const { return of == SlotClass::small ? kSmallSlots : large_slots_; }

  // For slot < slots().
  static SlotClass class_of(std::uint32_t slot) { return slot < kSmallSlots ? SlotClass::small : SlotClass::large; }
  static std::size_t frame_limit(std::uint32_t slot) {
    return class_of(slot) == SlotClass::small ? kSmallSlotBytes : kMaxFrameBytes;
  }
  std::byte* slot(std::uint32_t slot) const {
    if (slot < kSmallSlots) return memory_ + kSmallSlotsOffset + slot * kSmallSlotBytes;
    return memory_ + kLargeSlotsOffset + (slot - kSmallSlots) * kLargeSlotBytes;
  }

 private:
  std::byte* memory_;
  std::uint32_t large_slots_;
};

}  // namespace qccl::shm
