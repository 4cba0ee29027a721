#include "transport/shm/frame_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace qccl::shm {

// ---- the sender

FrameQueueSender::FrameQueueSender(const FrameQueue& queue, WorldRank peer, std::size_t reuse_distance)
    : queue_(queue),
      peer_(peer),
      reuse_distance_(reuse_distance),
      descriptors_(queue.control().descriptors),
      returns_(queue.control().returns) {
  for (std::uint32_t slot = queue_.slots(); slot-- > 0;) {
    free_slots(FrameQueue::class_of(slot)).push_back(static_cast<std::uint16_t>(slot));
  }
}

Reservation FrameQueueSender::reserve(std::size_t max_bytes, TrafficClass traffic) {
  QCCL_CHECK(max_bytes <= kMaxFrameBytes);
  const bool is_large = max_bytes > kSmallSlotBytes;
  auto& free = free_slots(is_large ? SlotClass::large : SlotClass::small);
  // Large slots are taken back each time, to reuse those still in cache; for the many small ones that would cost more.
  if (is_large || free.size() <= kSmallSlots / 2) take_returns();
  if (!fault_.empty()) return {};
  const bool has_slot = free.size() > (!is_large && traffic == TrafficClass::data ? kControlSlots : 0);
  set_starved(!has_slot);
  if (!has_slot) return {};
  const std::uint32_t slot = take_slot(is_large ? SlotClass::large : SlotClass::small);
  return {*this, peer_, traffic, {queue_.slot(slot), max_bytes}};
}

Reservation FrameQueueSender::hold(std::size_t max_bytes) {
  QCCL_CHECK(max_bytes <= kMaxFrameBytes);
  take_returns();
  const bool leaves_enough = free_slots(SlotClass::large).size() > queue_.slots(SlotClass::large) / 4;
  if (max_bytes <= kSmallSlotBytes || !leaves_enough || !fault_.empty()) return {};
  return {*this, peer_, TrafficClass::data, {queue_.slot(take_slot(SlotClass::large)), max_bytes}};
}

// Small slots are taken last in, first out: they cost a cache line or two, and reusing the same few is worth more.
std::uint32_t FrameQueueSender::take_slot(SlotClass of) {
  auto& free = free_slots(of);
  const std::size_t distance = of == SlotClass::large ? std::min(reuse_distance_, free.size()) : 1;
  const auto taken = free.end() - static_cast<std::ptrdiff_t>(distance);
  const std::uint32_t slot = *taken;
  free.erase(taken);
  return slot;
}

void FrameQueueSender::commit(Reservation&& room, std::size_t bytes) {
  QCCL_CHECK(room && bytes > 0 && bytes <= room.bytes().size());
  const std::uint32_t slot = queue_.slot_at(room.bytes().data());
  room.forget();
  outstanding_.set(slot);
  descriptors_.push({slot, static_cast<std::uint32_t>(bytes)});
}

void FrameQueueSender::give_back(const Reservation& room) {
  const std::uint32_t slot = queue_.slot_at(room.bytes().data());
  free_slots(FrameQueue::class_of(slot)).push_back(static_cast<std::uint16_t>(slot));
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

// ---- the receiver

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
