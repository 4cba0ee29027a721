// The receiving end of a lane: validates the sender's descriptors, hands frames out, returns slots.
//
// A receiver may hold frames of one operation for a long time, which must not block other operations. Once only a
// quarter of a slot class would be left to the sender, frames are copied out and their slots returned at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "transport/shm/layout.h"
#include "transport/shm/ring.h"

namespace qccl::shm {

// A frame held by the receiver: in its slot, or in a buffer if slots ran short.
struct Holding {
  SlotClass slot_class = SlotClass::small;
  bool held = false;                  // by the caller
  bool with_us = false;               // true until the slot is returned: it is held, or waits in a batch
  std::uint16_t slot = 0;             // unless there is a copy
  std::unique_ptr<std::byte[]> copy;  // room for the largest frame of the class
};

// Buffers for copies, reused last in, first out. Keeps as many as were ever in use together, which is bounded by the
// number of frames the caller holds. One thread.
class CopyPool {
 public:
  Holding* take(SlotClass of);
  void give_back(Holding* holding) { free_[static_cast<std::size_t>(holding->slot_class)].push_back(holding); }
  std::size_t buffers() const { return all_.size(); }

 private:
  std::vector<std::unique_ptr<Holding>> all_;
  std::vector<Holding*> free_[kSlotClasses];
};

// One thread. The lane's memory and the pool must outlive it.
class LaneReceiver {
 public:
  struct Arrival {
    Holding* holding;
    ConstBytes bytes;  // at least 1; the sender can still change them: copy, then check
  };

  LaneReceiver(const Lane& lane, CopyPool& pool);

  // True if take() has something to do. Reads one line of shared memory.
  bool arrived() const { return descriptors_.arrived(); }
  // The next frame, in sending order. Empty if there is none, or if the sender misbehaved: see fault().
  std::optional<Arrival> take();
  // Ends the hold of a frame, in any order.
  void release(Holding* holding);

  // True once after slots were returned: the sender may need a ring.
  bool returned() {
    const bool was = returned_;
    returned_ = false;
    return was;
  }
  // Whether the sender waits for slots. Relaxed: ask after full_fence(), which orders it.
  bool sender_starves() const { return lane_.control().starved.load(std::memory_order_relaxed) != 0; }

  // The sender's violation, if any. A lane with a fault must not be used any more.
  const std::string& fault() const { return fault_; }

 private:
  bool valid(const RingItem& item);
  Arrival hand_out(const RingItem& item);
  Arrival hand_out_copy(const RingItem& item, Holding* holding);
  bool leaves_enough(SlotClass of) const;
  void flush();
  void return_slot(std::uint16_t slot);
  std::uint32_t& count_with_us(std::uint32_t slot) { return with_us_[static_cast<std::size_t>(Lane::class_of(slot))]; }

  // Small slots are returned in batches of this size, so that a stream of small frames touches few cache lines. No
  // sender ever waits for the slots held back: they count as held, and a quarter of the class always stays clear of
  // held slots.
  static constexpr std::size_t kReturnBatch = 8;

  Lane lane_;
  CopyPool& pool_;
  RingReader descriptors_;
  RingWriter returns_;
  std::vector<Holding> by_slot_;
  std::uint32_t with_us_[kSlotClasses] = {0, 0};
  std::array<std::uint16_t, kReturnBatch> batch_;
  std::size_t batched_ = 0;
  bool returned_ = false;
  std::string fault_;
};

}  // namespace qccl::shm
