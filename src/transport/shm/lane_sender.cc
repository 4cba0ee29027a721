#include "transport/shm/lane_sender.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace qccl::shm {

LaneSender::LaneSender(const Lane& lane, std::size_t reuse_distance)
    : lane_(lane),
      reuse_distance_(reuse_distance),
      descriptors_(lane.control().descriptors),
      returns_(lane.control().returns) {
  for (std::uint32_t slot = lane_.slots(); slot-- > 0;) {
    free_slots(Lane::class_of(slot)).push_back(static_cast<std::uint16_t>(slot));
  }
}

bool LaneSender::may_take(SlotClass from, TrafficClass traffic) const {
  const bool kept_back = from == SlotClass::small && traffic == TrafficClass::data;
  return free_[static_cast<std::size_t>(from)].size() > (kept_back ? kControlSlots : 0);
}

Bytes LaneSender::reserve(std::size_t max_bytes, TrafficClass traffic) {
  QCCL_CHECK(max_bytes <= kMaxFrameBytes && reserved_ == kNoSlot);
  const SlotClass from = max_bytes <= kSmallSlotBytes ? SlotClass::small : SlotClass::large;
  auto& free = free_slots(from);
  // Large slots are taken back each time, to reuse those still in cache. Small slots are so many and so small that
  // checking the returns each time would cost more.
  if (from == SlotClass::large || free.size() <= kSmallSlots / 2) take_returns();
  if (!fault_.empty()) return {};
  if (!may_take(from, traffic)) {
    set_starved(true);
    return {};
  }
  set_starved(false);
  reserved_ = take_free(from);
  return {lane_.slot(reserved_), max_bytes};
}

// Small slots are taken last in, first out: they cost a cache line or two, and reusing the same few is worth more.
std::uint32_t LaneSender::take_free(SlotClass from) {
  auto& free = free_slots(from);
  const std::size_t distance = from == SlotClass::large ? std::min(reuse_distance_, free.size()) : 1;
  const auto taken = free.end() - static_cast<std::ptrdiff_t>(distance);
  const std::uint32_t slot = *taken;
  free.erase(taken);
  return slot;
}

void LaneSender::commit(std::size_t actual_bytes) {
  QCCL_CHECK(reserved_ != kNoSlot && actual_bytes <= Lane::frame_limit(reserved_));
  if (actual_bytes == 0) {
    free_slots(Lane::class_of(reserved_)).push_back(static_cast<std::uint16_t>(reserved_));
  } else {
    away_.set(reserved_);
    descriptors_.push({reserved_, static_cast<std::uint32_t>(actual_bytes)});
  }
  reserved_ = kNoSlot;
}

bool LaneSender::slots_came_back() {
  if (!starved_ || !take_returns()) return false;
  set_starved(false);
  return true;
}

// True if there were any returns. A return of a slot that is not away is a fault of the receiver.
bool LaneSender::take_returns() {
  bool took = false;
  RingItem item;
  while (fault_.empty()) {
    const auto state = returns_.peek(item);
    if (state == RingReader::State::empty) break;
    took = true;
    if (state == RingReader::State::corrupt) {
      fault_ = "the ring of returned slots is damaged";
    } else if (item.slot >= lane_.slots() || !away_.test(item.slot)) {
      fault_ = fmt::format("it returned slot {}, which it does not have", item.slot);
    } else {
      away_.reset(item.slot);
      free_slots(Lane::class_of(item.slot)).push_back(static_cast<std::uint16_t>(item.slot));
      returns_.advance();
    }
  }
  return took;
}

// Relaxed: the fences of bell.h order it, and the receiver needs it only while the sender sleeps.
void LaneSender::set_starved(bool starved) {
  if (starved == starved_) return;
  starved_ = starved;
  lane_.control().starved.store(starved ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace qccl::shm
