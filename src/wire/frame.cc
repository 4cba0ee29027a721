#include "wire/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/digest/digest.h"

namespace qccl::wire {
namespace {

constexpr char kHelloMagic[8] = {'Q', 'C', 'C', 'L', 'H', 'E', 'L', 'O'};
constexpr std::size_t kHelloReservedOffset = 36;
constexpr std::size_t kHelloChecksumOffset = 56;

std::uint64_t hello_checksum(const std::byte* hello) { return digest(as_text({hello, kHelloChecksumOffset})); }

constexpr std::uint32_t kMagic = 0x31464351;  // "QCF1"
constexpr std::size_t kNumberOffset = 44;
constexpr std::size_t kChecksumOffset = 60;

constexpr std::size_t kCodecOffset = 13;  // in an envelope
constexpr std::size_t kSettingsBytes = kMostEnvelopeBytes - kEnvelopeBytes;

std::uint32_t header_checksum(const std::byte* header) {
  return static_cast<std::uint32_t>(XXH3_64bits(header, kChecksumOffset));
}

// The fields but the magic and the header's checksum.
template <class Header, class Visit>
void visit_fields(Header& header, Visit visit) {
  visit(4, header.kind);
  visit(6, header.phase);
  visit(8, header.group);
  visit(16, header.sequence);
  visit(24, header.fingerprint);
  visit(32, header.chunk);
  visit(36, header.slice);
  visit(40, header.payload_bytes);
  visit(kNumberOffset, header.number);
  visit(48, header.payload_checksum);
  visit(56, header.eager_consumed);
}

}  // namespace

void encode_header(const FrameHeader& header, std::byte* target) {
  store(target, kMagic);
  visit_fields(header, [target](std::size_t offset, auto value) { store(target + offset, value); });
  store(target + kChecksumOffset, header_checksum(target));
}

void set_frame_number(std::byte* header, std::uint32_t number) {
  store(header + kNumberOffset, number);
  store(header + kChecksumOffset, header_checksum(header));
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
  visit_fields(header,
               [source]<class Field>(std::size_t offset, Field& field) { field = load<Field>(source + offset); });
  const auto kind = static_cast<std::uint16_t>(header.kind);
  if (kind < 1 || kind > static_cast<std::uint16_t>(FrameKind::status)) {
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
  if (envelope.compression.is_none()) return;
  store(target + kCodecOffset, static_cast<std::uint8_t>(envelope.compression.codec));
  std::memcpy(target + kEnvelopeBytes, envelope.compression.settings.data(), kSettingsBytes);
}

std::size_t envelope_bytes(ConstBytes payload) {
  return payload[kCodecOffset] == std::byte{} ? kEnvelopeBytes : kMostEnvelopeBytes;
}

Result<Envelope> decode_envelope(ConstBytes payload) {
  if (payload.size() < kEnvelopeBytes || payload.size() < envelope_bytes(payload)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("message of {} bytes is shorter than its envelope", payload.size()));
  }
  Envelope envelope{.count = load<std::uint64_t>(payload.data()),
                    .tag = load<std::int32_t>(payload.data() + 8),
                    .type = static_cast<DataType>(load<std::uint8_t>(payload.data() + 12))};
  if (envelope_bytes(payload) == kMostEnvelopeBytes) {
    envelope.compression.codec = load<std::uint8_t>(payload.data() + kCodecOffset);
    std::memcpy(envelope.compression.settings.data(), payload.data() + kEnvelopeBytes, kSettingsBytes);
  }
  return envelope;
}

std::uint64_t payload_checksum(ConstBytes payload) {
  const std::uint64_t found = digest(as_text(payload));
  return found == 0 ? 1 : found;
}

void encode_hello(const Hello& hello, std::byte* target) {
  std::memset(target, 0, kHelloBytes);
  std::memcpy(target, kHelloMagic, sizeof(kHelloMagic));
  store(target + 8, hello.version);
  store(target + 12, hello.rank);
  store(target + 16, hello.target);
  store(target + 20, hello.world);
  store(target + 24, hello.job);
  store(target + 32, hello.wanted_connections);
  store(target + 34, hello.connection);
  store(target + kHelloChecksumOffset, hello_checksum(target));
}

Result<Hello> decode_hello(const std::byte* source) {
  if (std::memcmp(source, kHelloMagic, sizeof(kHelloMagic)) != 0 ||
      load<std::uint64_t>(source + kHelloChecksumOffset) != hello_checksum(source)) {
    return Failure(ErrorKind::corrupt_data, "not a QCCL handshake");
  }
  if (std::any_of(source + kHelloReservedOffset, source + kHelloChecksumOffset,
                  [](std::byte byte) { return byte != std::byte{}; })) {
    return Failure(ErrorKind::corrupt_data, "handshake has data in reserved bytes: install the same QCCL everywhere");
  }
  const Hello hello{.version = load<std::uint32_t>(source + 8),
                    .rank = load<std::uint32_t>(source + 12),
                    .target = load<std::uint32_t>(source + 16),
                    .world = load<std::uint32_t>(source + 20),
                    .job = load<std::uint64_t>(source + 24),
                    .wanted_connections = load<std::uint16_t>(source + 32),
                    .connection = load<std::uint16_t>(source + 34)};
  // Other versions lay out these bytes differently; check_hello() names the versions.
  const bool is_in_range = hello.wanted_connections >= 1 && hello.wanted_connections <= kMaxConnections &&
                           hello.connection < hello.wanted_connections;
  if (hello.version == kWireVersion && !is_in_range) {
    return Failure(ErrorKind::corrupt_data, fmt::format("handshake names connection {} of {}: two ranks have 1 to {}",
                                                        hello.connection, hello.wanted_connections, kMaxConnections));
  }
  return hello;
}

Status check_hello(const Hello& own, const Hello& got) {
  if (got.version != own.version) {
    return Failure(ErrorKind::unsupported,
                   fmt::format("rank {} speaks wire version {}, this rank {}: install the same QCCL everywhere",
                               got.rank, got.version, own.version));
  }
  if (got.job != own.job) {
    return Failure(ErrorKind::misuse, "a rank of another job connected: two jobs share an address");
  }
  if (got.world != own.world || got.rank >= own.world || got.target != own.rank || got.rank == own.rank) {
    return Failure(
        ErrorKind::misuse,
        fmt::format("rank {} of {} connected to rank {} of {} and meant rank {}: ranks or world sizes differ", got.rank,
                    got.world, own.rank, own.world, got.target));
  }
  return {};
}

}  // namespace qccl::wire
