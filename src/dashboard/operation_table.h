// Sums of operations by name and size: times, bytes, the compression they have now. Bounded: see kMostRows.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "qccl/log.h"

namespace qccl::dashboard {

// How often a time occurred, in steps of a twelfth of an octave's eighth: 9 %, from 1 us to 70 minutes.
class TimeHistogram {
 public:
  void add(double ms);
  // The time that `share` of all do not exceed, to 9 %; 0 without times.
  double percentile(double share) const;

 private:
  static constexpr int kStepsPerOctave = 8;
  std::array<std::uint32_t, 256> counts_{};
  std::uint64_t total_ = 0;
};

class OperationTable {
 public:
  struct Row {
    std::string compression;  // of its latest operation
    std::uint64_t calls = 0;  // of all ranks
    std::uint64_t failed = 0;
    double total_ms = 0;
    double busbw_gbps = 0;  // sum over the calls that succeeded
    std::uint64_t wire_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t plain_bytes = 0;
    std::uint64_t changes = 0;     // of its compression
    std::uint64_t mean_bytes = 0;  // where the key has no size
    TimeHistogram times{};
  };
  using Key = std::pair<std::string, std::uint64_t>;  // name, bytes

  static constexpr std::size_t kMostRows = 200;  // further names and sizes share one row, kOthers
  static constexpr const char* kOthers = "(others)";

  // Returns what the operation's compression was before, if it has changed.
  std::optional<std::string> add(const OperationRecord& record);
  // Replaces the row of sums whose single operations are not known: their times stay empty.
  void set(const Key& key, const Row& row) {
    if (rows_.size() < kMostRows || rows_.contains(key)) rows_.insert_or_assign(key, row);
  }
  const std::map<Key, Row>& rows() const { return rows_; }

 private:
  struct Latest {
    Compression compression;
    std::uint64_t sequence = 0;
  };

  std::map<Key, Row> rows_;
  std::map<Key, Latest> latest_;
};

}  // namespace qccl::dashboard
