// Which rank comes last, counted as operations end: log_report.h's find_stragglers() without the whole logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "qccl/log.h"

namespace qccl::dashboard {

class Stragglers {
 public:
  struct Rank {
    std::uint64_t last_in = 0;  // operations in which it came last
    double waited_for_ms = 0;   // what the others waited for it, on average, over all operations
    double waited_ms = 0;       // what it waited for others
  };
  // The rank that the others waited for longest of late.
  struct Recent {
    int rank = -1;  // -1: there was no operation
    std::size_t last_in = 0;
    std::size_t compared = 0;
    double waited_for_ms = 0;  // for each operation in which it came last
    double blame = 0;          // the share of all waiting that was for it
    double latency_ms = 0;     // what operations took the rank that waited longest, on average
  };

  static constexpr std::size_t kOpenMeetings = 16384;  // operations that not all members have logged
  static constexpr std::size_t kRecent = 512;

  void add(int rank, const OperationRecord& record);

  const std::map<int, Rank>& ranks() const { return ranks_; }
  Recent recent() const;
  std::uint64_t compared() const { return compared_; }
  // Operations that some member never logged, or logged too late.
  std::uint64_t incomplete() const { return incomplete_; }

 private:
  using Call = std::pair<std::uint64_t, std::uint64_t>;  // group, number
  struct Part {
    int rank;
    double ms;
  };
  struct Last {
    int rank;
    double waited_ms;
    double longest_ms;
  };

  void close(const std::vector<Part>& parts);
  void forget_oldest();

  std::map<Call, std::vector<Part>> open_;
  std::deque<Call> order_;  // of open_, the oldest first; may name calls that have been closed
  std::map<int, Rank> ranks_;
  std::deque<Last> recent_;
  std::uint64_t compared_ = 0;
  std::uint64_t incomplete_ = 0;
};

}  // namespace qccl::dashboard
