#include "transport/shm/lane_receiver.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace qccl::shm {

Holding* CopyPool::take(SlotClass of) {
  auto& free = free_[static_cast<std::size_t>(of)];
  if (free.empty()) {
    const std::size_t bytes = of == SlotClass::small ? kSmallSlotBytes : kMaxFrameBytes;
    auto holding = std::make_unique<Holding>();
    holding->slot_class = of;
    holding->copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (free.capacity() <= all_.size()) free.reserve(2 * all_.size() + 1);  // so that give_back() never allocates
    all_.push_back(std::move(holding));
    free.push_back(all_.back().get());
  }
  Holding* taken = free.back();
  free.pop_back();
  return taken;
}

LaneReceiver::LaneReceiver(const Lane& lane, CopyPool& pool)
    : lane_(lane),
      pool_(pool),
      descriptors_(lane.control().descriptors),
      returns_(lane.control().returns),
      by_slot_(lane.slots()) {
  for (std::uint32_t slot = 0; slot < lane.slots(); ++slot) {
    by_slot_[slot].slot_class = Lane::class_of(slot);
    by_slot_[slot].slot = static_cast<std::uint16_t>(slot);
  }
}

std::optional<LaneReceiver::Arrival> LaneReceiver::take() {
  RingItem item;
  const auto state = fault_.empty() ? descriptors_.peek(item) : RingReader::State::empty;
  if (state == RingReader::State::empty) return std::nullopt;
  if (state == RingReader::State::corrupt) {
    fault_ = "the ring of descriptors is damaged";
    return std::nullopt;
  }
  if (!valid(item)) return std::nullopt;
  const auto of = Lane::class_of(item.slot);
  if (!leaves_enough(of)) flush();
  // Take the copy before the item leaves the ring: if memory runs out, the item stays there.
  Holding* const copy = leaves_enough(of) ? nullptr : pool_.take(of);
  descriptors_.advance();
  return copy == nullptr ? hand_out(item) : hand_out_copy(item, copy);
}

// Whether a quarter of the class would be left to the sender if one more frame were held.
bool LaneReceiver::leaves_enough(SlotClass of) const {
  const std::uint32_t left = lane_.slots(of) - with_us_[static_cast<std::size_t>(of)] - 1;
  return left >= lane_.slots(of) / 4;
}

// Validates `item`, which the other process wrote. No slot or length is used before this.
bool LaneReceiver::valid(const RingItem& item) {
  if (item.slot >= lane_.slots()) {
    fault_ = fmt::format("it sent slot {} of {}", item.slot, lane_.slots());
  } else if (item.bytes == 0 || item.bytes > Lane::frame_limit(item.slot)) {
    fault_ = fmt::format("it sent a frame of {} bytes in a slot of {}", item.bytes, Lane::frame_limit(item.slot));
  } else if (by_slot_[item.slot].with_us) {
    fault_ = fmt::format("it sent slot {}, which had not been returned", item.slot);
  }
  return fault_.empty();
}

LaneReceiver::Arrival LaneReceiver::hand_out(const RingItem& item) {
  Holding& holding = by_slot_[item.slot];
  holding.held = holding.with_us = true;
  ++count_with_us(item.slot);
  return {&holding, {lane_.slot(item.slot), item.bytes}};
}

LaneReceiver::Arrival LaneReceiver::hand_out_copy(const RingItem& item, Holding* holding) {
  holding->held = true;
  std::memcpy(holding->copy.get(), lane_.slot(item.slot), item.bytes);
  return_slot(static_cast<std::uint16_t>(item.slot));
  return {holding, {holding->copy.get(), item.bytes}};
}

void LaneReceiver::release(Holding* holding) {
  QCCL_CHECK(holding->held);
  holding->held = false;
  if (holding->copy != nullptr) return pool_.give_back(holding);
  batch_[batched_++] = holding->slot;
  if (holding->slot_class == SlotClass::large || batched_ == kReturnBatch) flush();
}

// Returns the slots that release() held back.
void LaneReceiver::flush() {
  for (std::size_t i = 0; i < batched_; ++i) {
    by_slot_[batch_[i]].with_us = false;
    --count_with_us(batch_[i]);
    return_slot(batch_[i]);
  }
  batched_ = 0;
}

void LaneReceiver::return_slot(std::uint16_t slot) {
  returns_.push({slot, 0});
  returned_ = true;
}

}  // namespace qccl::shm
