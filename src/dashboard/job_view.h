// All that the page shows of a job, summed up as the records arrive: what is kept and what is sent are bounded,
// whatever the number of calls. Thread-safe.
//
// The page asks for JSON: three documents that are sent when they change (job, gauges, messages), and the timeline of
// the part that it shows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "dashboard/gauge_table.h"
#include "dashboard/operation_table.h"
#include "dashboard/stragglers.h"
#include "dashboard/timeline.h"
#include "qccl/log.h"
#include "qccl/status.h"

namespace qccl::dashboard {

// Something that happened, for the list of events.
struct Message {
  std::int64_t at = 0;  // on the job's axis
  std::string kind;     // "shrink", "grow", "codec", "failure", "residual", "warning"
  std::string text;
  std::set<int> ranks;  // that reported it
  std::uint64_t count = 1;
};

class JobView {
 public:
  // What a page has seen of the documents; each number grows as its document changes.
  struct Versions {
    std::uint64_t job = 0;
    std::uint64_t gauges = 0;
    std::uint64_t messages = 0;
    friend bool operator==(const Versions&, const Versions&) = default;
  };

  // The part of the timeline that a page shows. Lanes are counted, not ranks.
  struct Window {
    Span span;  // on the job's axis, relative to its begin
    std::int64_t bins = 1;
    int first_lane = 0;
    int lanes = 0;
  };

  // ---- Records

  // A rank with its host and clock; the head's records are added too. A rank that is known keeps its records.
  void add_rank(const RankLog& head);
  // Of a rank that add_rank() has named; others are left out.
  void add(int rank, const OperationRecord& record);
  void add(int rank, const GaugeRecord& gauge);
  void add(int rank, const RoundRecord& round);
  void add_message(const std::string& kind, const std::string& text, int rank);
  // The states of all ranks at `now`, since 1970, of a job that runs. Of a rank whose records come too, only what they
  // don't have.
  void add_states(std::span<const RankStatus> states, Nanoseconds now);
  // Where the records come from, in words.
  void set_source(const std::string& source);
  // Forgets all but the source; versions go on.
  void clear();

  // ---- What the page gets

  Versions versions() const;
  // Returns when a version differs from those seen, or after `patience`.
  Versions wait(const Versions& seen, std::chrono::milliseconds patience) const;
  std::string job_json() const;
  std::string gauges_json() const;
  std::string messages_json() const;
  std::string timeline_json(const Window& window) const;

 private:
  friend class JobDocuments;

  // What only a running job tells of a rank.
  struct LiveState {
    std::string state;               // "": the job is known by its records alone
    std::string text;                // what it is doing, or why it is lost
    double busy = 0;                 // share of the time in calls, of late
    double seconds = 0;              // of its last state
    std::int64_t until = 0;          // when it was had
    double busy_seconds = 0;         // the same
    std::set<std::string> warnings;  // that were told
  };
  struct Line {
    int rank = 0;
    LineStatus status;
  };

  struct Rank {
    std::string host;
    std::int64_t offset = 0;  // added to its times: the job's axis
    Timeline timeline{0};
    std::uint64_t operations = 0;
    std::uint64_t failed = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t plain_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::int64_t last_ended = 0;
    std::string last_name;
    std::uint64_t last_sequence = 0;
    std::string error;  // of its last operation
    std::uint64_t dropped = 0;
    bool has_records = false;
    LiveState live;
  };

  // Groups that follow each other under one name.
  struct Groups {
    std::set<std::uint64_t> ids;
    int size = 0;  // of the latest
  };

  void add_locked(int rank, const OperationRecord& record);
  Stroke stroke_of(const OperationRecord& record, std::int64_t offset);
  static void add_sums(Rank& own, const OperationRecord& record);
  void add_state(const RankStatus& state, std::int64_t now);
  static void add_sums(Rank& own, const RankStatus& state, std::int64_t now);
  void add_share(Rank& own, const RankStatus& state, std::int64_t now);
  void add_counters(std::span<const RankStatus> states);
  void say(Message message);
  void watch_group(int rank, const OperationRecord& record, std::int64_t at);
  std::uint8_t kind_of(const std::string& name);
  void changed(std::uint64_t Versions::*document);

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable news_;
  Versions versions_{1, 1, 1};
  std::string source_;
  int world_ = 0;
  std::int64_t begin_ = 0;  // of the axis: the first time that was seen
  std::int64_t end_ = 0;
  std::map<int, Rank> ranks_;
  std::map<std::string, std::int64_t> clock_offsets_;
  std::vector<std::string> kinds_;
  std::map<std::string, Groups> groups_;  // by the name of the first
  Stragglers stragglers_;
  OperationTable operations_;
  GaugeTable gauges_;
  std::deque<Message> messages_;
  std::string hold_up_;  // who keeps others waiting now, in a running job
  std::vector<Line> lines_;
};

}  // namespace qccl::dashboard
