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

void visit_record(auto& fields, auto& record) {
  fields.integer(record.world);
  fields.integer(record.token);
  fields.string(record.process, kMaxProcessBytes);
  fields.string(record.card, kMaxCardBytes);
}

void visit_outcome(auto& fields, auto& outcome) {
  fields.integer(outcome.kind);
  fields.integer(outcome.nonce);
  fields.integer(outcome.error);
  fields.string(outcome.reason, kMaxReasonBytes);
  fields.strings(outcome.records, kMaxRecords, kMaxRecordBytes);
}

}  // namespace

std::string encode_record(const Record& record) {
  ByteWriter writer;
  visit_record(writer, record);
  return writer.take();
}

Result<Record> decode_record(std::string_view bytes) {
  ByteReader reader(bytes);
  Record record;
  visit_record(reader, record);
  record.process = printable(record.process);
  if (reader.finished()) return record;
  return unreadable("a rank's record");
}

std::string encode_outcome(const GenerationResult& outcome) {
  ByteWriter writer;
  visit_outcome(writer, outcome);
  return writer.take();
}

Result<GenerationResult> decode_outcome(std::string_view bytes) {
  ByteReader reader(bytes);
  GenerationResult outcome;
  visit_outcome(reader, outcome);
  outcome.reason = printable(outcome.reason);
  using Kind = GenerationResult::Kind;
  const bool is_kind = outcome.kind >= Kind::complete && outcome.kind <= Kind::superseded;
  if (reader.finished() && is_kind && outcome.error <= ErrorKind::unsupported) return outcome;
  return unreadable("the outcome");
}

}  // namespace qccl::bootstrap
