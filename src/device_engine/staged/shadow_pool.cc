#include "device_engine/staged/shadow_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace qccl::engine {

std::size_t ShadowPool::size_class(std::size_t bytes) { return static_cast<std::size_t>(std::bit_width(bytes) - 1); }

Shadow ShadowPool::take(const device::Device& device, std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  if (Shadow found = find(size); found.bytes > 0) return found;
  // Pinned outside of the lock, which the thread that drives the engine takes as well.
  if (reserve(size)) {
    auto pinned = device::PinnedMemory::allocate(device, size);
    if (pinned.ok()) return {.pinned = std::move(pinned.value()), .bytes = size};
    const std::lock_guard lock(mutex_);
    pinned_bytes_ -= size;
    --made_[size_class(size)];
  }
  return {.pageable = std::make_unique_for_overwrite<std::byte[]>(size), .bytes = size};
}

Shadow ShadowPool::find(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Shadow>& free = free_[size_class(bytes)];
  if (free.empty()) return {};
  Shadow found = std::move(free.back());
  free.pop_back();
  return found;
}

// Counts `bytes` more as pinned, if necessary instead of free shadows of other sizes. False: that is over the limit.
bool ShadowPool::reserve(std::size_t bytes) {
  std::vector<Shadow> dropped;  // unpinned after the lock
  const std::lock_guard lock(mutex_);
  for (auto& free : free_) {
    while (pinned_bytes_ + bytes > pinned_limit_ && !free.empty()) {
      const std::size_t size = free.back().bytes;
      dropped.push_back(std::move(free.back()));
      free.pop_back();
      pinned_bytes_ -= size;
      --made_[size_class(size)];
    }
  }
  if (pinned_bytes_ + bytes > pinned_limit_) return false;
  const std::size_t size = size_class(bytes);
  free_[size].reserve(made_[size] + 1);
  ++made_[size];
  pinned_bytes_ += bytes;
  return true;
}

void ShadowPool::give_back(Shadow shadow) {
  if (shadow.pinned == nullptr) return;
  const std::lock_guard lock(mutex_);
  std::vector<Shadow>& free = free_[size_class(shadow.bytes)];
  free.push_back(std::move(shadow));  // has room: see reserve()
}

std::uint64_t ShadowPool::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

}  // namespace qccl::engine
