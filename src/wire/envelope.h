// The envelope of a message (send, recv): the first bytes of a `message` frame's payload.
//
// | offset | bytes | field | meaning                       |
// |--------|-------|-------|-------------------------------|
// | 0      | 8     | count | elements                      |
// | 8      | 4     | tag   | chosen by the caller          |
// | 12     | 1     | type  | DataType, compared and shown  |
// | 13     | 3     |       | zero                          |
//
// A small message's data follows completely; a larger one's comes in frames of its own, once granted.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "qccl/types.h"

namespace qccl::wire {

inline constexpr std::size_t kEnvelopeBytes = 16;

struct Envelope {
  std::uint64_t count = 0;
  std::int32_t tag = 0;
  DataType type = DataType::uint8;
};

// Writes kEnvelopeBytes.
void encode_envelope(const Envelope& envelope, std::byte* target);
// CorruptData if the payload is shorter than an envelope.
Result<Envelope> decode_envelope(ConstBytes payload);

}  // namespace qccl::wire
