// The receiving end of a frame queue: validates the sender's descriptors, hands out frames, returns slots.
//
// A receiver may hold the frames of one operation for a long time, which must not block other operations. Where holding
// one more frame would leave the sender less than a quarter of a slot class, the frame is copied out and its slot
// returned at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/shm/layout.h"
#include "transport/shm/ring.h"

namespace qccl::shm {

// A frame that the caller holds: in its slot, or in a buffer if slots ran short.
struct HeldFrame {
  SlotClass slot_class = SlotClass::small;
  bool in_use = false;                // by the caller
  bool owns_slot = false;             // true until the slot is returned: it is in use, or waits in a batch
  std::uint16_t slot = 0;             // unless there is a copy
  std::unique_ptr<std::byte[]> copy;  // room for the largest frame of the class
};

// Buffers for copies, reused last in, first out. Keeps as many as were ever in use together, which is bounded by the
// number of frames the caller holds. One thread.
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
