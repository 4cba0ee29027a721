#include "wire/envelope.h"

#include <cstring>

namespace qccl::wire {

void encode_envelope(const Envelope& envelope, std::byte* target) {
  std::memset(target, 0, kEnvelopeBytes);
  store(target, envelope.count);
  store(target + 8, envelope.tag);
  store(target + 12, static_cast<std::uint8_t>(envelope.type));
}

Result<Envelope> decode_envelope(ConstBytes payload) {
  if (payload.size() < kEnvelopeBytes) {
    return Failure(ErrorKind::corrupt_data,
                   "message of " + std::to_string(payload.size()) + " bytes is shorter than its envelope");
  }
  Envelope envelope;
  envelope.count = load<std::uint64_t>(payload.data());
  envelope.tag = load<std::int32_t>(payload.data() + 8);
  envelope.type = static_cast<DataType>(load<std::uint8_t>(payload.data() + 12));
  return envelope;
}

}  // namespace qccl::wire
