// What connections carry.
//
// The handshake: the first bytes on a connection between two ranks. The dialler sends a Hello; the acceptor checks it
// and answers with its own. Anything else comes from a stranger and is dropped.
//
// | offset | bytes | field    | meaning                                                |
// |--------|-------|----------|--------------------------------------------------------|
// | 0      | 8     | magic    | "QCCLHELO"                                             |
// | 8      | 4     | version  | kWireVersion, must be equal                            |
// | 12     | 4     | rank     | of the sender                                          |
// | 16     | 4     | target   | rank that is meant                                     |
// | 20     | 4     | world    | must be equal                                          |
// | 24     | 8     | job      | digest of the job's name and nonce, must be equal      |
// | 32     | 2     | wanted   | number of TCP connections that the sender wants        |
// | 34     | 2     | index    | which connection of the two ranks this is, from 0      |
// | 36     | 20    | reserved | zero; room for authentication                          |
// | 56     | 8     | checksum | XXH3-64 of bytes 0..55                                 |
//
// The frame: the unit that every transport carries.
//
// | offset | bytes | field            | meaning                                                     |
// |--------|-------|------------------|-------------------------------------------------------------|
// | 0      | 4     | magic            | "QCF1"                                                      |
// | 4      | 2     | kind             | FrameKind                                                   |
// | 6      | 2     | phase            | data: which of the plan's exchanges                         |
// | 8      | 8     | group            | group identity                                              |
// | 16     | 8     | sequence         | operation number in the group, from 1; of a message: its    |
// |        |       |                  | number among those from its sender to its receiver          |
// | 24     | 8     | fingerprint      | digest of the call                                          |
// | 32     | 4     | chunk            |                                                             |
// | 36     | 4     | slice            | index in the chunk; in a message frame: how many follow     |
// | 40     | 4     | payload_bytes    | at most kPayloadLimit                                       |
// | 44     | 4     | number           | of the frame, from 0, if several connections carry those to |
// |        |       |                  | a peer, modulo 2^32; else 0                                 |
// | 48     | 8     | payload_checksum | XXH3-64 of the payload, 0 where the peers share a host      |
// | 56     | 4     | eager_consumed   | bytes of eager frames taken from the addressee, modulo 2^32 |
// | 60     | 4     | header_checksum  | low half of XXH3-64 of bytes 0..59                          |
//
// The envelope of a message (send, recv) is the beginning of a `message` frame's payload:
//
// | offset | bytes | field    | meaning                                              |
// |--------|-------|----------|------------------------------------------------------|
// | 0      | 8     | count    | elements                                             |
// | 8      | 4     | tag      | chosen by the caller                                 |
// | 12     | 1     | type     | DataType, compared and shown                         |
// | 13     | 1     | codec    | Compression::codec, compared and shown; 0: none      |
// | 14     | 2     |          | zero                                                 |
// | 16     | 48    | settings | Compression::settings, float64; only with a codec    |
//
// A small message's data follows its envelope; a larger one's comes in frames of its own, once granted.
//
// All integers are little-endian. No value read from a header sizes an allocation or bounds a loop before
// decode_header() has accepted it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::wire {

inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::uint32_t kWireVersion = 3;
// The most TCP connections between two ranks.
inline constexpr std::uint16_t kMaxConnections = 16;

struct Hello {
  std::uint32_t version = kWireVersion;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
  std::uint32_t world = 0;
  std::uint64_t job = 0;
  std::uint16_t wanted_connections = 1;
  std::uint16_t connection = 0;
};

void encode_hello(const Hello& hello, std::byte* target);
// CorruptData if these bytes are no Hello (magic, checksum, reserved bytes, connections). check_hello() says whether it
// matches.
Result<Hello> decode_hello(const std::byte* source);
// Unsupported or Misuse, with the reason, if `got` does not belong to the same job as `own`.
Status check_hello(const Hello& own, const Hello& got);

enum class FrameKind : std::uint16_t {
  data = 1,         // one encoded slice
  grant = 2,        // payload: a list of streams and the slices that may be sent of each
  request = 3,      // announces data that needs a grant: answer with a grant
  poison = 4,       // payload: an error; the group is lost
  fingerprint = 5,  // payload: this rank's call of that sequence
  heartbeat = 6,
  goodbye = 7,         // this rank leaves in good order
  message = 8,         // payload: envelope, and all of the data if the eager flag is set
  message_data = 9,    // one slice of a message's data
  message_grant = 10,  // permission to send slices of a message up to `slice`
  given_up = 11,       // payload: kind, reason; the sender considers the receiver lost and sends no more
  last = 12,           // ends one of several connections in good order; number: of frames sent on all of them
  member_list = 13,    // payload: see wire/member_list.h
  status_query = 14,   // asks for a status frame
  status = 15          // payload: what the sender is doing (observe/status_text.h)
};

struct FrameHeader {
  FrameKind kind = FrameKind::data;
  std::uint16_t phase = 0;
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::uint32_t chunk = 0;
  std::uint32_t slice = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t number = 0;
  std::uint64_t payload_checksum = 0;
  std::uint32_t eager_consumed = 0;
};

struct Envelope {
  std::uint64_t count = 0;
  std::int32_t tag = 0;
  DataType type = DataType::uint8;
  Compression compression{};  // of the data
};

inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kEnvelopeBytes = 16;  // without a codec
inline constexpr std::size_t kMostEnvelopeBytes = kEnvelopeBytes + Compression::kMaxSettings * sizeof(double);
static_assert(kMostEnvelopeBytes == 64);
inline constexpr std::uint32_t kPayloadLimit = 256 * 1024;

// Writes the header with its checksum to `target` (kHeaderBytes).
void encode_header(const FrameHeader& header, std::byte* target);

// Changes the number of an encoded header, and with it the checksum.
void set_frame_number(std::byte* header, std::uint32_t number);

// Reads and validates kHeaderBytes: magic, checksum, kind, payload limit. CorruptData otherwise.
// The bytes must not change meanwhile: copy them out of shared memory first.
Result<FrameHeader> decode_header(const std::byte* source);

inline std::size_t envelope_bytes(const Envelope& envelope) {
  return envelope.compression.is_none() ? kEnvelopeBytes : kMostEnvelopeBytes;
}
// The same of a message frame's payload, which has at least kEnvelopeBytes.
std::size_t envelope_bytes(ConstBytes payload);
// Writes envelope_bytes().
void encode_envelope(const Envelope& envelope, std::byte* target);
// CorruptData if the payload is shorter than its envelope. The compression may be one that this library does not have.
Result<Envelope> decode_envelope(ConstBytes payload);

// Never 0, so that 0 can mean "not checked".
std::uint64_t payload_checksum(ConstBytes payload);

}  // namespace qccl::wire
