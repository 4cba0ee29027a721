#include "transport/shm/frame_queue_sender.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace qccl::shm {

FrameQueueSender::FrameQueueSender(const FrameQueue& queue, std::size_t reuse_distance)
    : queue_(queue),
      reuse_distance_(reuse_distance),
      descriptors_(queue.control().descriptors),
      returns_(queue.control().returns) {
  for (std::uint32_t slot = queue_.slots(); slot-- > 0;) {
    free_slots(FrameQueue::class_of(slot)).push_back(static_cast<std::uint16_t>(slot));
  }
}

Bytes FrameQueueSender::reserve(std::size_t max_bytes, TrafficClass traffic) {
  QCCL_CHECK(max_bytes <= kMaxFrameBytes && reserved_ == kNoSlot);
  const bool is_large = max_bytes > kSmallSlotBytes;
  auto& free = free_slots(is_large ? SlotClass::large : SlotClass::small);
  // Large slots are taken back each time, to reuse those still in cache. Small slots are so many and so small that
  // checking the returns each time would cost more.
  if (is_large || free.size() <= kSmallSlots / 2) take_returns();
  if (!fault_.empty()) return {};
  const bool has_slot = free.size() > (!is_large && traffic == TrafficClass::data ? kControlSlots : 0);
  set_starved(!has_slot);
  if (!has_slot) return {};
  // Small slots are taken last in, first out: they cost a cache line or two, and reusing the same few is worth more.
  const std::size_t distance = is_large ? std::min(reuse_distance_, free.size()) : 1;
  const auto taken = free.end() - static_cast<std::ptrdiff_t>(distance);
  reserved_ = *taken;
  free.erase(taken);
  return {queue_.slot(reserved_), max_bytes};
}

void FrameQueueSender::commit(std::size_t actual_bytes) {
  QCCL_CHECK(reserved_ != kNoSlot && actual_bytes <= FrameQueue::frame_limit(reserved_));
  if (actual_bytes == 0) {
    free_slots(FrameQueue::class_of(reserved_)).push_back(static_cast<std::uint16_t>(reserved_));
  } else {
    outstanding_.set(reserved_);
    descriptors_.push({reserved_, static_cast<std::uint32_t>(actual_bytes)});
  }
  reserved_ = kNoSlot;
}

bool FrameQueueSender::slots_came_back() {
  if (!starved_ || !take_returns()) return false;
  set_starved(false);
  return true;
}

// True if there were any returns. A return of a slot that is not outstanding is a fault of the receiver.
bool FrameQueueSender::take_returns() {
  bool took = false;
  RingItem item;
  while (fault_.empty()) {
    const auto state = returns_.peek(item);
    if (state == RingReader::State::empty) break;
    took = true;
    if (state == RingReader::State::corrupt) {
      fault_ = "the ring of returned slots is damaged";
    } else if (item.slot >= queue_.slots() || !outstanding_.test(item.slot)) {
      fault_ = fmt::format("it returned slot {}, which it does not have", item.slot);
    } else {
      outstanding_.reset(item.slot);
      free_slots(FrameQueue::class_of(item.slot)).push_back(static_cast<std::uint16_t>(item.slot));
      returns_.advance();
    }
  }
  return took;
}

// Relaxed: the fences of bell.h order it, and the receiver needs it only while the sender sleeps.
void FrameQueueSender::set_starved(bool starved) {
  if (starved == starved_) return;
  starved_ = starved;
  queue_.control().starved.store(starved ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace qccl::shm
