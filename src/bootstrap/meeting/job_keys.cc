#include "bootstrap/meeting/job_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/text.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/store/store_protocol.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kRecordOverhead = 4 + 8 + 3 * 8;  // world, token, three lengths
constexpr std::size_t kMaxRecordBytes = kRecordOverhead + kMaxProcessBytes + kMaxCardBytes + kMaxSealBytes;
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
  fields.string(record.seal, kMaxSealBytes);
}

void visit_outcome(auto& fields, auto& outcome) {
  fields.integer(outcome.kind);
  fields.integer(outcome.nonce);
  fields.integer(outcome.error);
  fields.string(outcome.reason, kMaxReasonBytes);
  fields.strings(outcome.records, kMaxRecords, kMaxRecordBytes);
}

constexpr std::string_view kPlainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

// Users choose job names: characters that could be taken for a separator are written as %XX.
std::string key_prefix(const std::string& job, std::uint32_t restart) {
  std::string escaped;
  for (const char c : job) {
    const bool is_plain = kPlainCharacters.find(c) != std::string_view::npos;
    escaped += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return fmt::format("qccl/{}/{}/", escaped, restart);
}

template <class T>
Result<T> guarded(const auto& call) {
  try {
    return call();
  } catch (const Error& error) {
    return Failure(error.info());
  } catch (const std::exception& exception) {
    return Failure(ErrorKind::unsupported, std::string("the store failed: ") + exception.what());
  }
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

std::string wire_prefix(const std::string& job, std::uint32_t restart) { return wire_key(key_prefix(job, restart)); }

std::string door_name(const std::string& job) { return job + "/door"; }

KeySpace::KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock)
    : store_(store),
      pipelined_(dynamic_cast<PipelinedStore*>(&store)),
      clock_(clock),
      prefix_(key_prefix(job, restart)) {}

std::chrono::milliseconds KeySpace::until(TimePoint deadline) const {
  return std::chrono::ceil<std::chrono::milliseconds>(std::max(deadline - clock_.now(), Nanoseconds::zero()));
}

Status KeySpace::set(const std::string& key, const std::string& value) {
  return guarded<void>([&] {
    store_.set(prefix_ + key, value);
    return Status();
  });
}

Will KeySpace::full_will(const Will& will) const {
  Will full;
  for (const auto& [key, value] : will) full.emplace_back(prefix_ + key, value);
  return full;
}

Status KeySpace::leave_will(const Will& will) {
  if (pipelined_ == nullptr) return {};
  return guarded<void>([&] {
    pipelined_->leave_will(full_will(will));
    return Status();
  });
}

Result<std::optional<std::string>> KeySpace::get(const std::string& key, TimePoint deadline) {
  return guarded<std::optional<std::string>>([&] { return store_.get(prefix_ + key, until(deadline)); });
}

Result<std::int64_t> KeySpace::add(const std::string& key, std::int64_t delta) {
  return guarded<std::int64_t>([&] { return store_.add(prefix_ + key, delta); });
}

Result<std::vector<std::int64_t>> KeySpace::counters(const std::vector<std::string>& keys) {
  return guarded<std::vector<std::int64_t>>([&] {
    std::vector<std::string> full_keys;
    for (const std::string& key : keys) full_keys.push_back(prefix_ + key);
    if (pipelined_ != nullptr) return pipelined_->counters(full_keys);
    std::vector<std::int64_t> sums;
    for (const std::string& key : full_keys) sums.push_back(store_.add(key, 0));
    return sums;
  });
}

Result<ClaimAnswer> KeySpace::claim(const ClaimRequest& request, TimePoint deadline) {
  const ClaimRequest full{prefix_ + request.counter, prefix_ + request.card_key, request.card,
                          prefix_ + request.awaited_key, full_will(request.will)};
  return guarded<ClaimAnswer>([&] {
    if (pipelined_ != nullptr) return pipelined_->claim(full, until(deadline));
    return claim_in_steps(store_, full, until(deadline));
  });
}

JobKeys::JobKeys(const std::string& job, std::uint32_t restart, int world)
    : prefix_(wire_prefix(job, restart)), door_prefix_(wire_prefix(door_name(job), 0)), world_(world) {}

std::string JobKeys::refusals_key() const { return prefix_ + kRefusals; }

// Each number has only one spelling; otherwise a key could be written in many ways.
std::optional<JobKeys::Parts> JobKeys::parts_of(std::string_view key) const {
  if (!key.starts_with(prefix_)) return std::nullopt;
  key.remove_prefix(prefix_.size());
  const auto first = key.find('/');
  if (first == std::string_view::npos) return std::nullopt;
  const auto second = key.find('/', first + 1);
  const int generation = parse_number<int>(key.substr(0, first)).value_or(0);
  Parts parts{.generation = generation, .name = key.substr(first + 1, second - first - 1)};
  if (generation < 1 || generation > kMaxGenerations) return std::nullopt;
  if (second == std::string_view::npos) {
    if (key != fmt::format("{}/{}", generation, parts.name)) return std::nullopt;
    return parts;
  }
  parts.rank = parse_number<int>(key.substr(second + 1)).value_or(0);
  const bool is_rank = parts.rank > 0 && parts.rank < kMaxWorld;
  if (!is_rank || key != fmt::format("{}/{}/{}", generation, parts.name, parts.rank)) return std::nullopt;
  return parts;
}

bool JobKeys::is_listed_door(std::string_view key) const {
  constexpr std::string_view kEntry = "door/";
  if (!key.starts_with(door_prefix_) || !key.substr(door_prefix_.size()).starts_with(kEntry)) return false;
  key.remove_prefix(door_prefix_.size() + kEntry.size());
  const int number = parse_number<int>(key).value_or(0);
  return number > 0 && number <= kMostListedDoors && key == std::to_string(number);
}

bool JobKeys::may_add(std::string_view key, std::int64_t delta) const {
  if (delta == 0) return true;
  if (delta != 1) return false;
  if (key == door_prefix_ + "doors") return true;
  const auto parts = parts_of(key);
  if (!parts) return false;
  return parts->rank < 0 ? parts->name == "closed" : parts->name == "claim";
}

bool JobKeys::may_set(std::string_view key, std::string_view value) const {
  if (is_listed_door(key)) return decode_record(value).ok();
  const auto parts = parts_of(key);
  if (!parts) return false;
  if (parts->rank > 0) return parts->name == "card" && decode_record(value).ok();
  if (parts->name == "failure") return value.size() <= kMaxReasonBytes;
  if (parts->name == "closed") return value == "1";
  if (parts->name != "outcome") return false;
  auto outcome = decode_outcome(value);
  return outcome.ok() && outcome->kind == GenerationResult::Kind::failed && outcome->records.empty();
}

int JobKeys::entered_by(std::string_view key) const {
  const auto parts = parts_of(key);
  return parts && parts->name == "card" && parts->rank > 0 && parts->rank < world_ ? parts->generation : 0;
}

int JobKeys::ended_by(std::string_view key) const {
  const auto parts = parts_of(key);
  const bool ends = parts && (parts->name == "closed" || parts->name == "outcome" || parts->name == "failure");
  return ends ? parts->generation : 0;
}

}  // namespace qccl::bootstrap
