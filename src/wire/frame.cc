#include "wire/frame.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/digest/digest.h"

namespace qccl::wire {
namespace {

constexpr std::uint32_t kMagic = 0x31464351;  // "QCF1"
constexpr std::size_t kReservedOffset = 44;
constexpr std::size_t kChecksumOffset = 60;

std::uint32_t header_checksum(const std::byte* header) {
  return static_cast<std::uint32_t>(XXH3_64bits(header, kChecksumOffset));
}

}  // namespace

void encode_header(const FrameHeader& header, std::byte* target) {
  store(target, kMagic);
  store(target + 4, static_cast<std::uint16_t>(header.kind));
  store(target + 6, header.phase);
  store(target + 8, header.group);
  store(target + 16, header.sequence);
  store(target + 24, header.fingerprint);
  store(target + 32, header.chunk);
  store(target + 36, header.slice);
  store(target + 40, header.payload_bytes);
  store(target + kReservedOffset, std::uint32_t{0});
  store(target + 48, header.payload_checksum);
  store(target + 56, header.eager_consumed);
  store(target + kChecksumOffset, header_checksum(target));
}

Result<FrameHeader> decode_header(const std::byte* source) {
  if (load<std::uint32_t>(source) != kMagic) {
    return Failure(ErrorKind::corrupt_data,
                   "frame header does not begin with QCF1: not a QCCL peer, or a damaged stream");
  }
  if (load<std::uint32_t>(source + kChecksumOffset) != header_checksum(source)) {
    return Failure(ErrorKind::corrupt_data, "frame header fails its checksum: the stream is damaged");
  }
  FrameHeader header;
  const auto kind = load<std::uint16_t>(source + 4);
  header.kind = static_cast<FrameKind>(kind);
  header.phase = load<std::uint16_t>(source + 6);
  header.group = load<std::uint64_t>(source + 8);
  header.sequence = load<std::uint64_t>(source + 16);
  header.fingerprint = load<std::uint64_t>(source + 24);
  header.chunk = load<std::uint32_t>(source + 32);
  header.slice = load<std::uint32_t>(source + 36);
  header.payload_bytes = load<std::uint32_t>(source + 40);
  header.payload_checksum = load<std::uint64_t>(source + 48);
  header.eager_consumed = load<std::uint32_t>(source + 56);
  if (load<std::uint32_t>(source + kReservedOffset) != 0) {
    return Failure(ErrorKind::corrupt_data,
                   "frame header has data in reserved bytes: install the same QCCL everywhere");
  }
  if (kind < 1 || kind > static_cast<std::uint16_t>(FrameKind::given_up)) {
    return Failure(ErrorKind::corrupt_data, fmt::format("frame of unknown kind {}", kind));
  }
  if (header.payload_bytes > kPayloadLimit) {
    return Failure(ErrorKind::corrupt_data, fmt::format("frame payload of {} bytes is over the limit of {}",
                                                        header.payload_bytes, kPayloadLimit));
  }
  return header;
}

void encode_envelope(const Envelope& envelope, std::byte* target) {
  std::memset(target, 0, kEnvelopeBytes);
  store(target, envelope.count);
  store(target + 8, envelope.tag);
  store(target + 12, static_cast<std::uint8_t>(envelope.type));
}

Result<Envelope> decode_envelope(ConstBytes payload) {
  if (payload.size() < kEnvelopeBytes) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("message of {} bytes is shorter than its envelope", payload.size()));
  }
  return Envelope{.count = load<std::uint64_t>(payload.data()),
                  .tag = load<std::int32_t>(payload.data() + 8),
                  .type = static_cast<DataType>(load<std::uint8_t>(payload.data() + 12))};
}

std::uint64_t payload_checksum(ConstBytes payload) {
  const std::uint64_t found = digest(as_text(payload));
  return found == 0 ? 1 : found;
}

}  // namespace qccl::wire
