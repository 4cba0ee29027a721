#include "device/registered_memory.h"

#include <algorithm>
#include <utility>

namespace qccl::device {

Status RegisteredMemory::add(const Device& device, std::shared_ptr<const void> owner, Bytes memory) {
  QCCL_ASSIGN(auto registration, Registration::make(device, memory.data(), memory.size()));
  const auto after = std::ranges::upper_bound(ranges_, static_cast<const std::byte*>(memory.data()), std::less<>(),
                                              [](const Range& range) { return range.bytes.data(); });
  ranges_.insert(after, {memory, std::move(owner), std::move(registration)});
  size_ += memory.size();
  return {};
}

bool RegisteredMemory::contains(ConstBytes bytes) const {
  const auto after = std::ranges::upper_bound(ranges_, bytes.data(), std::less<>(),
                                              [](const Range& range) { return range.bytes.data(); });
  if (after == ranges_.begin()) return false;
  const ConstBytes range = std::prev(after)->bytes;
  return bytes.data() + bytes.size() <= range.data() + range.size();
}

void RegisteredMemory::clear() {
  ranges_.clear();
  size_ = 0;
}

}  // namespace qccl::device
