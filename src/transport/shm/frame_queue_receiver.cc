#include "transport/shm/frame_queue_receiver.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace qccl::shm {

HeldFrame* CopyPool::take(SlotClass of) {
  auto& free = free_[static_cast<std::size_t>(of)];
  if (free.empty()) {
    const std::size_t bytes = of == SlotClass::small ? kSmallSlotBytes : kMaxFrameBytes;
    auto frame = std::make_unique<HeldFrame>();
    frame->slot_class = of;
    frame->copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (free.capacity() <= all_.size()) free.reserve(2 * all_.size() + 1);  // so that put_back() never allocates
    all_.push_back(std::move(frame));
    free.push_back(all_.back().get());
  }
  HeldFrame* const taken = free.back();
  free.pop_back();
  return taken;
}

FrameQueueReceiver::FrameQueueReceiver(const FrameQueue& queue, CopyPool& pool)
    : queue_(queue),
      pool_(pool),
      descriptors_(queue.control().descriptors),
      returns_(queue.control().returns),
      by_slot_(queue.slots()) {
  for (std::uint32_t slot = 0; slot < queue.slots(); ++slot) {
    by_slot_[slot].slot_class = FrameQueue::class_of(slot);
    by_slot_[slot].slot = static_cast<std::uint16_t>(slot);
  }
}

std::optional<FrameQueueReceiver::Arrival> FrameQueueReceiver::take() {
  RingItem item;
  const auto state = fault_.empty() ? descriptors_.peek(item) : RingReader::State::empty;
  if (state == RingReader::State::empty) return std::nullopt;
  if (state == RingReader::State::corrupt) {
    fault_ = "the ring of descriptors is damaged";
    return std::nullopt;
  }
  if (!is_valid(item)) return std::nullopt;
  const auto of = FrameQueue::class_of(item.slot);
  if (!may_hold_one_more(of)) flush_returns();
  const bool copies = !may_hold_one_more(of);
  // A copy's buffer is taken before the item leaves the ring: if memory runs out, the item stays there.
  HeldFrame* const frame = copies ? pool_.take(of) : &by_slot_[item.slot];
  descriptors_.advance();
  frame->in_use = true;
  if (copies) {
    std::memcpy(frame->copy.get(), queue_.slot(item.slot), item.bytes);
    return_slot(item.slot);
    return Arrival{frame, {frame->copy.get(), item.bytes}};
  }
  frame->owns_slot = true;
  ++owned_slots_[static_cast<std::size_t>(of)];
  return Arrival{frame, {queue_.slot(item.slot), item.bytes}};
}

bool FrameQueueReceiver::may_hold_one_more(SlotClass of) const {
  const std::uint32_t left = queue_.slots(of) - owned_slots_[static_cast<std::size_t>(of)] - 1;
  return left >= queue_.slots(of) / 4;
}

// Validates `item`, which the other process wrote. No slot or length is used before this.
bool FrameQueueReceiver::is_valid(const RingItem& item) {
  if (item.slot >= queue_.slots()) {
    fault_ = fmt::format("it sent slot {} of {}", item.slot, queue_.slots());
  } else if (item.bytes == 0 || item.bytes > FrameQueue::frame_limit(item.slot)) {
    fault_ = fmt::format("it sent a frame of {} bytes in a slot of {}", item.bytes, FrameQueue::frame_limit(item.slot));
  } else if (by_slot_[item.slot].owns_slot) {
    fault_ = fmt::format("it sent slot {}, which had not been returned", item.slot);
  }
  return fault_.empty();
}

void FrameQueueReceiver::release(HeldFrame* frame) {
  QCCL_CHECK(frame->in_use);
  frame->in_use = false;
  if (frame->copy != nullptr) return pool_.put_back(frame);
  batch_[batched_++] = frame->slot;
  if (frame->slot_class == SlotClass::large || batched_ == kReturnBatch) flush_returns();
}

// Returns the batched slots.
void FrameQueueReceiver::flush_returns() {
  for (std::size_t i = 0; i < batched_; ++i) {
    HeldFrame& frame = by_slot_[batch_[i]];
    frame.owns_slot = false;
    --owned_slots_[static_cast<std::size_t>(frame.slot_class)];
    return_slot(frame.slot);
  }
  batched_ = 0;
}

void FrameQueueReceiver::return_slot(std::uint32_t slot) {
  returns_.push({slot, 0});
  has_returned_slots_ = true;
}

}  // namespace qccl::shm
