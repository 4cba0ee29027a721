#include "device/registered_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace qccl::device {

std::byte* ReachedMemory::find(ConstBytes bytes) const {
  const auto after = std::ranges::upper_bound(ranges_, bytes.data(), std::less<>(),
                                              [](const Range& range) { return range.bytes.data(); });
  if (after == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  if (bytes.data() + bytes.size() > range.bytes.data() + range.bytes.size()) return nullptr;
  return range.address + (bytes.data() - range.bytes.data());
}

Status RegisteredMemory::add(const Device& device, std::shared_ptr<const void> owner, Bytes memory) {
  QCCL_ASSIGN(auto registration, Registration::make(device, memory.data(), memory.size()));
  ranges_.push_back({memory, std::move(owner), std::move(registration)});
  return {};
}

Result<ReachedMemory> RegisteredMemory::on(const Device& device) const {
  ReachedMemory reached;
  for (const Range& range : ranges_) {
    QCCL_ASSIGN(std::byte* const address, range.registration->address_on(device));
    reached.ranges_.push_back({range.bytes, address});
  }
  std::ranges::sort(reached.ranges_, std::less<>(),
                    [](const ReachedMemory::Range& range) { return range.bytes.data(); });
  return reached;
}

}  // namespace qccl::device
