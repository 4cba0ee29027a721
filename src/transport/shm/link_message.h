// The messages by which two ranks of a host set up their shared memory, over a unix socket; file descriptors travel
// with them.
//
//   lower rank                                        higher rank
//   offer    + pair memory, its doorbell, area, heap ->
//                                                   <-  answer + its doorbell, area, heap
//   accepted                                        ->
//
// Either rank may send `refused` instead of its next message; both then do without shared memory.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "transport/shm/layout.h"

namespace qccl::shm {

enum class LinkMessageKind : std::uint32_t { offer = 1, answer = 2, accepted = 3, refused = 4 };

inline constexpr std::uint64_t kLinkMagic = 0x314D48534C434351;  // "QCCLSHM1"

// The bytes of a message. Those of a peer are used only after check().
struct LinkMessage {
  std::uint64_t magic = kLinkMagic;
  std::uint32_t layout = kLayoutVersion;
  LinkMessageKind kind = LinkMessageKind::offer;
  std::int32_t rank = 0;  // of the sender
  std::int32_t target = 0;
  std::uint32_t large_slots = 0;  // of a frame queue, 4 to 16
  std::uint32_t reason = 0;       // refused: an ErrorKind; otherwise 0
  std::uint64_t pair_bytes = 0;   // as the layout has it for large_slots
  std::uint64_t area_bytes = sizeof(Area);
  std::uint64_t heap_bytes = 0;  // of the sender's heap, whole pages; 0 where it has none
  std::uint64_t zero = 0;
};
static_assert(sizeof(LinkMessage) == 64 && offsetof(LinkMessage, kind) == 12 && offsetof(LinkMessage, reason) == 28);
static_assert(offsetof(LinkMessage, pair_bytes) == 32 && offsetof(LinkMessage, heap_bytes) == 48);

// CorruptData if this is no such message; Unsupported if the peer was built with another layout.
inline Status check(const LinkMessage& message) {
  if (message.magic != kLinkMagic) {
    return Failure(ErrorKind::corrupt_data, "the offer of shared memory does not begin with QCCLSHM1");
  }
  if (message.layout != kLayoutVersion) {
    return Failure(
        ErrorKind::unsupported,
        fmt::format("the peer lays out shared memory by version {}, this build by {}", message.layout, kLayoutVersion));
  }
  if (message.kind < LinkMessageKind::offer || message.kind > LinkMessageKind::refused ||
      message.reason > static_cast<std::uint32_t>(ErrorKind::unsupported)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("shared memory message of unknown kind {}", static_cast<std::uint32_t>(message.kind)));
  }
  if (message.large_slots < kMinLargeSlots || message.large_slots > kMaxLargeSlots ||
      message.pair_bytes != pair_bytes(message.large_slots) || message.area_bytes != sizeof(Area)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("shared memory with {} large slots has another size here", message.large_slots));
  }
  if (message.heap_bytes > kHeapBytes || message.heap_bytes % kPageBytes != 0) {
    return Failure(ErrorKind::corrupt_data, fmt::format("invalid heap size: {} bytes", message.heap_bytes));
  }
  return {};
}

}  // namespace qccl::shm
