// The messages by which two ranks of a host set up their shared memory, over a unix socket; file descriptors travel
// with them.
//
// | offset | bytes | field       | meaning                                                     |
// |--------|-------|-------------|-------------------------------------------------------------|
// | 0      | 8     | magic       | "QCCLSHM1"                                                  |
// | 8      | 4     | layout      | kLayoutVersion, must be equal                               |
// | 12     | 4     | kind        | LinkMessageKind                                             |
// | 16     | 4     | rank        | of the sender                                               |
// | 20     | 4     | target      | rank that is meant                                          |
// | 24     | 4     | large_slots | of a lane, 4 to 16                                          |
// | 28     | 4     | reason      | refused: an ErrorKind; else 0                               |
// | 32     | 8     | pair_bytes  | must be what the layout says for large_slots                |
// | 40     | 8     | area_bytes  | must be what the layout says                                |
// | 48     | 8     | heap_bytes  | of the sender's heap, whole pages; 0 where it has none      |
// | 56     | 8     | zero        |                                                             |
//
//   lower rank                                        higher rank
//   offer    + pair memory, its doorbell, area, heap ->
//                                                   <-  answer + its doorbell, area, heap
//   accepted                                        ->
//
// Either rank may send `refused` instead of its next message; both then do without shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace qccl::shm {

inline constexpr std::size_t kLinkMessageBytes = 64;

enum class LinkMessageKind : std::uint32_t { offer = 1, answer = 2, accepted = 3, refused = 4 };

struct LinkMessage {
  LinkMessageKind kind = LinkMessageKind::offer;
  int rank = 0;
  int target = 0;
  std::uint32_t large_slots = 0;
  ErrorKind reason{};
  std::uint64_t heap_bytes = 0;
};

void encode_link_message(const LinkMessage& message, std::byte* target);
// CorruptData if these bytes are not such a message; Unsupported if the peer was built with another layout.
Result<LinkMessage> decode_link_message(const std::byte* source);

}  // namespace qccl::shm
