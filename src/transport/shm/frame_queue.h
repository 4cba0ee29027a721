// A queue of frames in shared memory (layout.h), from one rank to another, and its two ends.
//
// The receiver validates the sender's descriptors, hands out frames and returns slots. It may hold the frames of one
// operation for a long time, which must not block other operations: where holding one more frame would leave the sender
// less than a quarter of a slot class, the frame is copied out and its slot returned at once.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/shm/layout.h"
#include "transport/transport.h"

namespace qccl::shm {

// A ring passes words through shared memory from one writer to one reader, without shared positions: each word carries
// its lap number, so the reader polls only the word it wants next. A small frame then moves one cache line for its
// descriptor and one for its header.
//
// | bits  | field | meaning                                                        |
// |-------|-------|----------------------------------------------------------------|
// | 0-15  | lap   | position / kRingWords + 1, modulo 2^16; memory begins at lap 0 |
// | 16-31 | slot  |                                                                |
// | 32-63 | bytes | of the frame; 0 in a return                                    |
//
// The writer never overtakes the reader: there are fewer slots than words, and a slot comes back only after the reader
// has taken the word that passed it.

struct RingItem {
  std::uint32_t slot = 0;
  std::uint32_t bytes = 0;
};

constexpr std::uint16_t lap_at(std::uint64_t position) { return static_cast<std::uint16_t>(position / kRingWords + 1); }

constexpr std::uint64_t pack_ring_word(std::uint16_t lap, RingItem item) {
  return std::uint64_t{item.bytes} << 32 | std::uint64_t{item.slot & 0xFFFFu} << 16 | lap;
}

// Private to the writing side. One thread.
class RingWriter {
 public:
  explicit RingWriter(Ring& ring) : ring_(&ring) {}

  // Release: pairs with the acquire of RingReader::peek, which therefore sees the slot's contents (or, for a return,
  // that its bytes have been read).
  void push(RingItem item) {
    ring_->words[position_ % kRingWords].store(pack_ring_word(lap_at(position_), item), std::memory_order_release);
    ++position_;
  }

 private:
  Ring* ring_;
  std::uint64_t position_ = 0;
};

// Private to the reading side. One thread.
class RingReader {
 public:
  enum class State { empty, ready, corrupt };

  explicit RingReader(const Ring& ring) : ring_(&ring) {}

  // True unless peek() would return empty.
  bool arrived() const { return lap_of(load()) != static_cast<std::uint16_t>(lap_at(position_) - 1); }

  // Looks at the next word. `item` is exactly what the other process wrote: not validated.
  State peek(RingItem& item) const {
    const std::uint64_t word = load();
    if (lap_of(word) == lap_at(position_)) {
      item = {static_cast<std::uint32_t>(word >> 16) & 0xFFFFu, static_cast<std::uint32_t>(word >> 32)};
      return State::ready;
    }
    const bool old = lap_of(word) == static_cast<std::uint16_t>(lap_at(position_) - 1);
    return old ? State::empty : State::corrupt;
  }
  void advance() { ++position_; }

 private:
  // Acquire: pairs with the release of RingWriter::push.
  std::uint64_t load() const { return ring_->words[position_ % kRingWords].load(std::memory_order_acquire); }
  static std::uint16_t lap_of(std::uint64_t word) { return static_cast<std::uint16_t>(word); }

  const Ring* ring_;
  std::uint64_t position_ = 0;
};

enum class SlotClass : std::uint8_t { small, large };
inline constexpr std::size_t kSlotClasses = 2;

// A frame queue in mapped memory. Does not own the memory.
class FrameQueue {
 public:
  FrameQueue(std::byte* memory, std::uint32_t large_slots) : memory_(memory), large_slots_(large_slots) {}

  QueueControl& control() const { return *reinterpret_cast<QueueControl*>(memory_); }
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
  // The slot that begins there.
  std::uint32_t slot_at(const std::byte* begin) const {
    const auto offset = static_cast<std::size_t>(begin - memory_);
    const bool is_small = offset < kLargeSlotsOffset;
    return static_cast<std::uint32_t>(is_small ? (offset - kSmallSlotsOffset) / kSmallSlotBytes
                                               : kSmallSlots + (offset - kLargeSlotsOffset) / kLargeSlotBytes);
  }

 private:
  std::byte* memory_;
  std::uint32_t large_slots_;
};

// Small slots that data must leave to control frames: credits must not wait behind the data they allow.
inline constexpr std::size_t kControlSlots = 8;

// A large slot is reused only after this many others have come back since, or all of them if there are fewer. By then
// its lines have left the receiver's private caches, from which they would have to be fetched, and are still in the
// shared cache. On a Zen 4 an all_reduce of 1 MiB takes 64 us with 6 and 141 us with 1 (bench/peers/compare).
inline constexpr std::size_t kReuseDistance = 6;
// Ranks that take turns on a core share its caches: the slot that came back last is the one in cache. The same call of
// 4 ranks on 2 cores takes 700 us with 6 and 290 us with 1.
inline constexpr std::size_t kReuseDistanceOnSharedCores = 1;

// The sender's free lists are private, one per slot class, in the order of return. One thread. The memory outlives it.
class FrameQueueSender final : private Reservation::Owner {
 public:
  FrameQueueSender(const FrameQueue& queue, WorldRank peer, std::size_t reuse_distance);

  // Room for a frame of up to `max_bytes`, at most kMaxFrameBytes. None if no slot of its class is free: from then on
  // the receiver rings when it returns slots, if this rank sleeps.
  Reservation reserve(std::size_t max_bytes, TrafficClass traffic);
  // The same for a large frame (of more than kSmallSlotBytes) that is sent later; none where it would leave reserve()
  // less than a quarter of the slots.
  Reservation hold(std::size_t max_bytes);
  // Passes the room with its first `bytes`, at least one, to the receiver.
  void commit(Reservation&& room, std::size_t bytes);

  // Whether slots came back since a reserve() failed. True once: the caller retries, or needs no slot any more.
  bool slots_came_back();

  // The receiver's violation, if any. A queue with a fault must not be used any more.
  const std::string& fault() const { return fault_; }

 private:
  bool take_returns();
  std::uint32_t take_slot(SlotClass of);
  void give_back(const Reservation& room) override;
  void set_starved(bool starved);
  std::vector<std::uint16_t>& free_slots(SlotClass of) { return free_[static_cast<std::size_t>(of)]; }

  FrameQueue queue_;
  WorldRank peer_;
  std::size_t reuse_distance_;
  RingWriter descriptors_;
  RingReader returns_;
  std::vector<std::uint16_t> free_[kSlotClasses];
  std::bitset<kMaxSlots> outstanding_;  // passed to the receiver, not yet returned
  bool starved_ = false;
  std::string fault_;
};

// A frame that the caller holds: in its slot, or in a buffer if slots ran short.
struct HeldFrame {
  SlotClass slot_class = SlotClass::small;
  bool in_use = false;                // by the caller
  bool owns_slot = false;             // true until the slot is returned: it is in use, or waits in a batch
  std::uint16_t slot = 0;             // unless there is a copy
  std::unique_ptr<std::byte[]> copy;  // room for the largest frame of the class
};

// Buffers for copies, reused last in, first out: as many as the caller ever held frames together. One thread.
class CopyPool {
 public:
  HeldFrame* take(SlotClass of);
  void put_back(HeldFrame* frame) { free_[static_cast<std::size_t>(frame->slot_class)].push_back(frame); }
  std::size_t buffers() const { return all_.size(); }

 private:
  std::vector<std::unique_ptr<HeldFrame>> all_;
  std::vector<HeldFrame*> free_[kSlotClasses];
};

// One thread. The queue's memory and the pool must outlive it.
class FrameQueueReceiver {
 public:
  struct Arrival {
    HeldFrame* frame;
    ConstBytes bytes;  // at least 1; the sender can still change them: copy, then check
  };

  FrameQueueReceiver(const FrameQueue& queue, CopyPool& pool);

  // True if take() has something to do. Reads one line of shared memory.
  bool arrived() const { return descriptors_.arrived(); }
  // The next frame, in sending order. Empty if there is none, or if the sender misbehaved: see fault().
  std::optional<Arrival> take();
  // Ends the hold of a frame, in any order.
  void release(HeldFrame* frame);

  // True once after slots were returned: the sender may need a ring.
  bool has_returned_slots() { return std::exchange(has_returned_slots_, false); }
  // Whether the sender waits for slots. Relaxed: call this after full_fence(), which orders it.
  bool sender_starves() const { return queue_.control().starved.load(std::memory_order_relaxed) != 0; }

  // The sender's violation, if any. A queue with a fault must not be used any more.
  const std::string& fault() const { return fault_; }

 private:
  bool is_valid(const RingItem& item);
  bool may_hold_one_more(SlotClass of) const;
  void flush_returns();
  void return_slot(std::uint32_t slot);

  // Small slots are returned in batches of this size, so that a stream of small frames touches few cache lines. No
  // sender ever waits for the slots in a batch: they count as held, and a quarter of the class is never held.
  static constexpr std::size_t kReturnBatch = 8;

  FrameQueue queue_;
  CopyPool& pool_;
  RingReader descriptors_;
  RingWriter returns_;
  std::vector<HeldFrame> by_slot_;
  std::uint32_t owned_slots_[kSlotClasses] = {0, 0};
  std::array<std::uint16_t, kReturnBatch> batch_;
  std::size_t batched_ = 0;
  bool has_returned_slots_ = false;
  std::string fault_;
};

}  // namespace qccl::shm
