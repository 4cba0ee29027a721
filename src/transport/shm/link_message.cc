#include "transport/shm/link_message.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "transport/shm/area.h"
#include "transport/shm/layout.h"

namespace qccl::shm {
namespace {

constexpr std::uint64_t kMagic = 0x314D48534C434351;  // "QCCLSHM1"
constexpr std::size_t kFilledBytes = 56;

bool is_kind(std::uint32_t kind) {
  return kind >= static_cast<std::uint32_t>(LinkMessageKind::offer) &&
         kind <= static_cast<std::uint32_t>(LinkMessageKind::refused);
}

}  // namespace

void encode_link_message(const LinkMessage& message, std::byte* target) {
  store(target, kMagic);
  store(target + 8, kLayoutVersion);
  store(target + 12, static_cast<std::uint32_t>(message.kind));
  store(target + 16, static_cast<std::int32_t>(message.rank));
  store(target + 20, static_cast<std::int32_t>(message.target));
  store(target + 24, message.large_slots);
  store(target + 28, static_cast<std::uint32_t>(message.reason));
  store(target + 32, static_cast<std::uint64_t>(pair_bytes(message.large_slots)));
  store(target + 40, static_cast<std::uint64_t>(sizeof(Area)));
  store(target + 48, message.heap_bytes);
  std::memset(target + kFilledBytes, 0, kLinkMessageBytes - kFilledBytes);
}

Result<LinkMessage> decode_link_message(const std::byte* source) {
  if (load<std::uint64_t>(source) != kMagic) {
    return Failure(ErrorKind::corrupt_data, "the offer of shared memory does not begin with QCCLSHM1");
  }
  const auto layout = load<std::uint32_t>(source + 8);
  if (layout != kLayoutVersion) {
    return Failure(
        ErrorKind::unsupported,
        fmt::format("the peer lays out shared memory by version {}, this build by {}", layout, kLayoutVersion));
  }
  const auto kind = load<std::uint32_t>(source + 12);
  const auto reason = load<std::uint32_t>(source + 28);
  LinkMessage message;
  message.kind = static_cast<LinkMessageKind>(kind);
  message.rank = load<std::int32_t>(source + 16);
  message.target = load<std::int32_t>(source + 20);
  message.large_slots = load<std::uint32_t>(source + 24);
  message.reason = static_cast<ErrorKind>(reason);
  message.heap_bytes = load<std::uint64_t>(source + 48);
  if (!is_kind(kind) || reason > static_cast<std::uint32_t>(ErrorKind::unsupported)) {
    return Failure(ErrorKind::corrupt_data, fmt::format("shared memory message of unknown kind {}", kind));
  }
  if (message.large_slots < kMinLargeSlots || message.large_slots > kMaxLargeSlots ||
      load<std::uint64_t>(source + 32) != pair_bytes(message.large_slots) ||
      load<std::uint64_t>(source + 40) != sizeof(Area)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("shared memory with {} large slots has another size here", message.large_slots));
  }
  if (message.heap_bytes > kHeapBytes || message.heap_bytes % kPageBytes != 0) {
    return Failure(ErrorKind::corrupt_data, fmt::format("a heap of {} bytes is none", message.heap_bytes));
  }
  return message;
}

}  // namespace qccl::shm
