// The format of a generation's outcome and of its ranks' records in the store (card_exchange.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

// Limit of an outcome's reason, and of a rank's description of its failure.
inline constexpr std::size_t kMaxReasonBytes = 4096;

// A rank's entry in the store.
struct Record {
  std::uint32_t world = 0;
  std::uint64_t token = 0;  // distinguishes processes that claim the same rank
  std::string process;      // "process 123 on node0"
  std::string card;
};

std::string encode_record(const Record& record);
// CorruptData if the bytes are no record. `process` is made printable, because a stranger may have written it.
Result<Record> decode_record(std::string_view bytes);

struct GenerationResult {
  enum class Kind : std::uint8_t { complete = 1, failed = 2, superseded = 3 };
  Kind kind = Kind::superseded;
  std::uint64_t nonce = 0;                         // complete
  std::vector<std::string> records{};              // complete: encoded, by rank; rank 0's too
  ErrorKind error = ErrorKind::deadline_exceeded;  // failed
  std::string reason{};                            // failed, superseded: for people; at most kMaxReasonBytes
};

std::string encode_outcome(const GenerationResult& outcome);
// CorruptData if the bytes are no outcome. `reason` is made printable, because a stranger may have written it.
Result<GenerationResult> decode_outcome(std::string_view bytes);

}  // namespace qccl::bootstrap
