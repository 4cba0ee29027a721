// The store of ended operations: the engine adds to it, the public log reads it.
//
// Owner: shared by the context and its users' handles. Any thread may call it; while the log is off no thread takes the
// lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "qccl/log.h"

namespace qccl::internal {

class LogStore {
 public:
  // The rank and job that the log belongs to.
  struct Identity {
    int rank = 0;
    int world = 1;
    std::uint64_t job = 0;  // a digest, so that groups of several jobs have identities of their own
    std::string host{};
    std::string clock{};
    std::int64_t unix_offset_ns = 0;
  };

  explicit LogStore(Identity identity) : identity_(std::move(identity)) {}

  bool is_on() const { return mode_.load(std::memory_order_relaxed) != Mode::off; }
  // Whether the log takes an operation that is posted now.
  bool wants(std::string_view operation, std::string_view name) const;
  // `record` has the log_name of its call, and the group's identity in its job.
  void add(OperationRecord record);
  // Nothing while the log is off.
  void add(const RoundRecord& round);
  void add(const GaugeRecord& gauge);

  // InvalidArgument, with nothing changed, if the file cannot be written.
  Status configure(const LogOptions& options);
  LogOptions options() const;
  RankLog read() const;
  // How many records of each list a reader has had.
  struct Seen {
    std::uint64_t operations = 0;
    std::uint64_t rounds = 0;
    std::uint64_t gauges = 0;
  };
  // The records that were added since, as far as they are kept; all of them are seen then.
  RankLog read_since(Seen& seen) const;
  void clear();

  // At the end of the job, once: writes the file that the options name, if any, with the records of this process's
  // other jobs that ended before under the same name and rank. ResourceExhausted if it cannot be written.
  Status write_file() const;

 private:
  // listed: operations in prof_ops.
  enum class Mode : std::uint8_t { off, listed, all };

  // What the store keeps: the lists of a RankLog, each of at most `capacity` records.
  struct Lists {
    std::deque<OperationRecord> records;
    std::deque<RoundRecord> rounds;
    std::deque<GaugeRecord> gauges;
  };

  template <class Record>
  void add_measured(std::deque<Record>& list, std::uint64_t& added, const Record& record);
  RankLog head() const;
  void make_room();
  Status claim(const std::string& path) const;
  std::string path(const LogOptions& options) const;

  const Identity identity_;
  std::atomic<Mode> mode_{Mode::off};  // relaxed: a thread that turns it on orders no operation by it

  mutable std::mutex mutex_;  // guards the following members
  LogOptions options_;
  Lists lists_;
  std::uint64_t dropped_ = 0;
  Seen added_;  // since the store began, cleared ones too
};

}  // namespace qccl::internal
