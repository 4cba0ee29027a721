// The values of the keys (keys.h): a rank's record, a generation's outcome and a newcomer's seat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bootstrap/protocol/keys.h"

namespace qccl::bootstrap {

// Limits of a record, and of its encoding.
inline constexpr std::size_t kMaxCardBytes = 768;
inline constexpr std::size_t kMaxProcessBytes = 128;
inline constexpr std::size_t kMaxSealBytes = 32;
inline constexpr std::size_t kMaxRecordBytes =
    4 + 8 + 3 * 8 + kMaxProcessBytes + kMaxCardBytes + kMaxSealBytes;  // world, token, three lengths
// Limit of an outcome's reason, and of a rank's description of its failure.
inline constexpr std::size_t kMaxReasonBytes = 4096;
// Limits of the addresses in a card. An IPv6 address has 45 bytes, a boot id with a namespace 52.
inline constexpr std::size_t kMaxCardAddresses = 8;
inline constexpr std::size_t kMaxAddressBytes = 80;

// A rank's entry in the store.
struct Record {
  std::uint32_t world = 0;
  std::uint64_t token = 0;  // distinguishes processes that claim the same rank
  std::string process{};    // "process 123 on node0"
  std::string card{};
  std::string seal{};  // see card_seal.h; empty if the job has no key
};

struct GenerationResult {
  enum class Kind : std::uint8_t { complete = 1, failed = 2, superseded = 3 };
  Kind kind = Kind::superseded;
  std::uint64_t nonce = 0;                         // complete
  std::vector<std::string> records{};              // complete: encoded, by rank; rank 0's too
  ErrorKind error = ErrorKind::deadline_exceeded;  // failed
  std::string reason{};                            // failed, superseded: for people; at most kMaxReasonBytes
};

// What a newcomer is given at the door of an open job: its rank in the world that the job grows to, and how to reach
// the others. Members tell each other the same without records.
struct Seat {
  // Longer than any encoded seat without records.
  static constexpr std::size_t kMaxBytes = 2048;

  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::string job{};                   // the world's name, never used before
  std::string compression{};           // of the group that grows
  std::int64_t timeout_ns = 0;         // of the same
  std::int64_t meeting_ns = 0;         // time to connect
  std::vector<std::string> records{};  // encoded, by rank; or none
};

std::string encode_record(const Record& record);
std::string encode_outcome(const GenerationResult& outcome);
std::string encode_seat(const Seat& seat);

// CorruptData for other bytes. `process` and `reason` are made printable, because a stranger may have written them.
Result<Record> decode_record(std::string_view bytes);
Result<GenerationResult> decode_outcome(std::string_view bytes);
Result<Seat> decode_seat(std::string_view bytes);

// Whether a client may set a key of this format to the value.
bool may_be_set(Format format, std::string_view value);

}  // namespace qccl::bootstrap
