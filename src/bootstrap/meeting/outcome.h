// What a generation's outcome and cards look like in the store (assembly.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

// Of an outcome's reason, and of what a rank says of its failure.
inline constexpr std::size_t kMaxReasonBytes = 4096;

// What a rank leaves in the store about itself.
struct Record {
  std::uint32_t world = 0;
  std::uint64_t token = 0;  // tells processes apart that claim the same rank
  std::string who;
  std::string card;
};

std::string encode_record(const Record& record);
// CorruptData if it is none. `who` is fit to print, whoever wrote it.
Result<Record> decode_record(std::string_view bytes);

struct Outcome {
  enum class Kind : std::uint8_t { complete = 1, failed = 2, superseded = 3 };
  Kind kind = Kind::superseded;
  std::uint64_t nonce = 0;                         // complete
  std::vector<std::string> records{};              // complete: encoded, by rank; rank 0's too
  ErrorKind error = ErrorKind::deadline_exceeded;  // failed
  std::string reason{};                            // failed, superseded: for people
};

std::string encode_outcome(const Outcome& outcome);
// CorruptData if it is none. `reason` is fit to print, whoever wrote it.
Result<Outcome> decode_outcome(std::string_view bytes);

}  // namespace qccl::bootstrap
