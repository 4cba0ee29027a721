#include "bootstrap/meeting/generation_result.h"

#include "base/text.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/store/byte_reader.h"
#include "bootstrap/store/store_protocol.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kRecordOverhead = 4 + 8 + 8 + 8;  // world, token, two lengths
constexpr std::size_t kMaxRecordBytes = kRecordOverhead + kMaxProcessBytes + kMaxCardBytes;
constexpr std::size_t kOutcomeOverhead = 64;
constexpr std::size_t kMaxRecords = 4096;  // larger than any world; the cost of larger worlds is tested
static_assert(kMaxWorld * (8 + kMaxRecordBytes) + kOutcomeOverhead <= kMaxValueBytes,
              "all ranks' records fit in one value of the store");

Failure unreadable(const char* what) {
  return Failure(ErrorKind::corrupt_data,
                 std::string("can't read ") + what +
                     " in the store; another version of QCCL wrote it, or a stranger that reaches the store: install "
                     "one version everywhere, and keep the store's port from others");
}

}  // namespace

std::string encode_record(const Record& record) {
  std::string bytes;
  append_integer(bytes, record.world);
  append_integer(bytes, record.token);
  append_string(bytes, record.process);
  append_string(bytes, record.card);
  return bytes;
}

Result<Record> decode_record(std::string_view bytes) {
  ByteReader reader(bytes);
  Record record;
  record.world = reader.integer<std::uint32_t>();
  record.token = reader.integer<std::uint64_t>();
  record.process = printable(reader.string(kMaxProcessBytes));
  record.card = reader.string(kMaxCardBytes);
  if (reader.finished()) return record;
  return unreadable("a rank's record");
}

std::string encode_outcome(const GenerationResult& outcome) {
  std::string bytes;
  append_integer(bytes, outcome.kind);
  append_integer(bytes, outcome.nonce);
  append_integer(bytes, outcome.error);
  append_string(bytes, std::string_view(outcome.reason).substr(0, kMaxReasonBytes));
  append_strings(bytes, outcome.records);
  return bytes;
}

Result<GenerationResult> decode_outcome(std::string_view bytes) {
  ByteReader reader(bytes);
  GenerationResult outcome;
  outcome.kind = static_cast<GenerationResult::Kind>(reader.integer<std::uint8_t>());
  outcome.nonce = reader.integer<std::uint64_t>();
  outcome.error = static_cast<ErrorKind>(reader.integer<std::uint8_t>());
  outcome.reason = printable(reader.string(kMaxReasonBytes));
  outcome.records = reader.strings(kMaxRecords, kMaxRecordBytes);
  using Kind = GenerationResult::Kind;
  const bool is_kind = outcome.kind >= Kind::complete && outcome.kind <= Kind::superseded;
  if (reader.finished() && is_kind && outcome.error <= ErrorKind::unsupported) return outcome;
  return unreadable("the outcome");
}

}  // namespace qccl::bootstrap
