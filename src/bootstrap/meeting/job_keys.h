// One job's keys in a store (the table in card_exchange.h): how its ranks read and write them, which of them strangers
// may write, and the format of a generation's outcome and of its ranks' records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/meeting/pipelined_store.h"

namespace qccl::bootstrap {

// Limits of a record.
inline constexpr std::size_t kMaxCardBytes = 768;
inline constexpr std::size_t kMaxProcessBytes = 128;
inline constexpr std::size_t kMaxSealBytes = 32;
// Limit of an outcome's reason, and of a rank's description of its failure.
inline constexpr std::size_t kMaxReasonBytes = 4096;

// Limit of the doors that a store lists (door_list.h).
inline constexpr int kMostListedDoors = 4096;

// A rank's entry in the store.
struct Record {
  std::uint32_t world = 0;
  std::uint64_t token = 0;  // distinguishes processes that claim the same rank
  std::string process;      // "process 123 on node0"
  std::string card;
  std::string seal{};  // see card_seal.h; empty if the job has no key
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

// Whom the store that rank 0 serves has refused for its key: text for people. No client can write it.
inline constexpr const char* kRefusals = "refused";

// The prefix of a job's keys on the wire.
std::string wire_prefix(const std::string& job, std::uint32_t restart);

// What doors, their list and newcomers call their keys and secrets.
std::string door_name(const std::string& job);

// The job's keys in a Store that other jobs may use too. All begin with "qccl/JOB/RESTART/".
class KeySpace {
 public:
  // `store` and `clock` outlive this.
  KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock);

  // PipelinedStore::knows_wills(), if the store is one.
  bool knows_wills() const { return pipelined_ != nullptr && pipelined_->knows_wills(); }

  // Exceptions of the Store become results: an Error unchanged, anything else as Unsupported.
  Status set(const std::string& key, const std::string& value);
  // PipelinedStore::leave_will(), if the store is one.
  Status leave_will(const Will& will);
  // Waits for the key until the deadline; empty if it does not exist by then.
  Result<std::optional<std::string>> get(const std::string& key, TimePoint deadline);
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  // add(key, 0) for each key, and ClaimRequest's calls: each in one round trip where the store can.
  Result<std::vector<std::int64_t>> counters(const std::vector<std::string>& keys);
  Result<ClaimAnswer> claim(const ClaimRequest& request, TimePoint deadline);

 private:
  std::chrono::milliseconds until(TimePoint deadline) const;
  Will full_will(const Will& will) const;

  Store& store_;
  PipelinedStore* const pipelined_;  // the same store, if it is one
  const Clock& clock_;
  std::string prefix_;
};

// The keys that clients other than rank 0 may write into the store that it serves, with values of their format.
// Everything else comes from a stranger. Limits of ranks and generations bound the total, even if strangers write it.
class JobKeys {
 public:
  // More generations than a job begins while one process of rank 0 serves it.
  static constexpr int kMaxGenerations = 16;

  // The job as in KeySpace. `world`: the number of expected ranks.
  JobKeys(const std::string& job, std::uint32_t restart, int world);

  int world() const { return world_; }
  // Where the server says whom it has refused, in its wire form; KeySpace's kRefusals.
  std::string refusals_key() const;
  // `key` is in its wire form. Adding 0 only reads.
  bool may_add(std::string_view key, std::int64_t delta) const;
  bool may_set(std::string_view key, std::string_view value) const;
  // The generation that a rank of this world enters with this key, its card; 0: none.
  int entered_by(std::string_view key) const;
  // The generation that a rank may end with this key; 0: none.
  int ended_by(std::string_view key) const;

 private:
  // "3/card/1": generation 3, name "card", rank 1. Without a rank: -1.
  struct Parts {
    int generation = 0;
    std::string_view name;
    int rank = -1;
  };
  std::optional<Parts> parts_of(std::string_view key) const;
  bool is_listed_door(std::string_view key) const;

  std::string prefix_;
  std::string door_prefix_;  // of door_list.h
  int world_;
};

}  // namespace qccl::bootstrap
