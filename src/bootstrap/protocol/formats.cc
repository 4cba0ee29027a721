#include "bootstrap/protocol/formats.h"

#include <utility>

#include "base/fields.h"
#include "base/text.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/store/store_protocol.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kOutcomeOverhead = 64;
constexpr std::size_t kMaxRecords = 4096;  // larger than any world; the cost of larger worlds is tested
static_assert(kMaxWorld * (8 + kMaxRecordBytes) + kOutcomeOverhead <= kMaxValueBytes,
              "all ranks' records fit in one value of the store");

constexpr std::uint32_t kSeatVersion = 2;
constexpr std::size_t kMaxJobBytes = 512;
constexpr std::size_t kMaxCompressionBytes = 1024;

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
  fields.string(record.seal, kMaxSealBytes);
}

void visit_outcome(auto& fields, auto& outcome) {
  fields.integer(outcome.kind);
  fields.integer(outcome.nonce);
  fields.integer(outcome.error);
  fields.string(outcome.reason, kMaxReasonBytes);
  fields.strings(outcome.records, kMaxRecords, kMaxRecordBytes);
}

void visit_seat(auto& fields, auto& version, auto& seat) {
  fields.integer(version);
  fields.integer(seat.rank);
  fields.integer(seat.world);
  fields.string(seat.job, kMaxJobBytes);
  fields.string(seat.compression, kMaxCompressionBytes);
  fields.integer(seat.timeout_ns);
  fields.integer(seat.meeting_ns);
  fields.strings(seat.records, kMaxRecords, kMaxRecordBytes);
}

bool is_sound(const Seat& seat) {
  const auto prints = [](const std::string& text) { return printable(text) == text; };
  const bool has_all = seat.records.empty() || std::cmp_equal(seat.records.size(), seat.world);
  return seat.rank >= 0 && seat.rank < seat.world && seat.world <= kMaxWorld && has_all && prints(seat.job) &&
         prints(seat.compression) && seat.timeout_ns > 0 && seat.meeting_ns > 0;
}

}  // namespace

std::string encode_record(const Record& record) {
  FieldWriter writer;
  visit_record(writer, record);
  return writer.take();
}

Result<Record> decode_record(std::string_view bytes) {
  FieldReader reader(bytes);
  Record record;
  visit_record(reader, record);
  record.process = printable(record.process);
  if (reader.finished()) return record;
  return unreadable("a rank's record");
}

std::string encode_outcome(const GenerationResult& outcome) {
  FieldWriter writer;
  visit_outcome(writer, outcome);
  return writer.take();
}

Result<GenerationResult> decode_outcome(std::string_view bytes) {
  FieldReader reader(bytes);
  GenerationResult outcome;
  visit_outcome(reader, outcome);
  outcome.reason = printable(outcome.reason);
  using Kind = GenerationResult::Kind;
  const bool is_kind = outcome.kind >= Kind::complete && outcome.kind <= Kind::superseded;
  if (reader.finished() && is_kind && outcome.error <= ErrorKind::unsupported) return outcome;
  return unreadable("the outcome");
}

std::string encode_seat(const Seat& seat) {
  FieldWriter writer;
  visit_seat(writer, kSeatVersion, seat);
  return writer.take();
}

Result<Seat> decode_seat(std::string_view bytes) {
  FieldReader reader(bytes);
  Seat seat;
  std::uint32_t version = 0;
  visit_seat(reader, version, seat);
  if (reader.finished() && version == kSeatVersion && is_sound(seat)) return seat;
  return Failure(
      ErrorKind::corrupt_data,
      "can't read the seat that a member of the job gave: it has another version of QCCL, or a stranger that "
      "reaches its door wrote it");
}

bool may_be_set(Format format, std::string_view value) {
  switch (format) {
    case Format::closers: return value == "1";
    case Format::process: return value.size() <= kMaxProcessBytes;
    case Format::record: return decode_record(value).ok();
    case Format::outcome: {
      const auto outcome = decode_outcome(value);
      return outcome.ok() && outcome.value().kind == GenerationResult::Kind::failed && outcome.value().records.empty();
    }
    case Format::reason: return value.size() <= kMaxReasonBytes;
    case Format::nothing: return value.empty();
    case Format::count:
    case Format::seat:
    case Format::choice: return false;
  }
  return false;
}

}  // namespace qccl::bootstrap
