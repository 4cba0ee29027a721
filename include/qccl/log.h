// The communication log: what every operation of a rank was, when it was posted, began and ended, and what it sent.
//
//   auto comm = qccl::init({.log = qccl::LogOptions{.enabled = true}});   // or QCCL_LOG_FILE=PREFIX in the environment
//   comm.all_reduce(gradient, {.log_name = "gradients"});
//   for (const auto& record : comm.log().read().records) ...
//
// qccl/log_report.h sums up what it holds. docs/log.md shows what can be seen in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl {

// The names are those of DeepSpeed's `comms_logger`.
struct LogOptions {
  bool enabled = false;
  bool verbose = false;                 // rank 0 writes a line to standard error for each operation that ends
  bool prof_all = true;                 // every operation; else those whose operation or name prof_ops lists
  std::vector<std::string> prof_ops{};  // "all_reduce", ...; also DeepSpeed's names, such as "all_gather_into_tensor"
  bool debug = false;                   // names have the operation in front of log_name; in Python it says who called
  std::size_t capacity = 1'000'000;     // records kept, of some 250 bytes each; the oldest make room for new ones
  std::string file{};                   // the context's end writes file + rank + ".json"; "": it does not
  std::optional<int> rank{};            // that this process goes by, if not by its rank in the job; once, in init()
};

// On the machine's monotonic clock, which ranks of one host share.
struct OperationTimes {
  std::int64_t posted_ns = 0;   // the program made the call
  std::int64_t started_ns = 0;  // the first of it moved; 0 if nothing ever did
  std::int64_t ended_ns = 0;    // its results were there, or it had failed

  friend bool operator==(const OperationTimes&, const OperationTimes&) = default;
};

// How an operation's data travelled.
enum class DataPath : std::uint8_t {
  frames,         // between all ranks, in shared memory or over the network
  board,          // small: through cells in shared memory
  shared_buffer,  // reduced where it lies, in memory that all ranks map
};
std::string_view to_string(DataPath path);

// One operation that has ended on this rank.
struct OperationRecord {
  std::string operation;  // "all_reduce", "send", ...
  std::string name;       // the call's log_name; without one, the operation
  std::string group;
  std::uint64_t group_id = 0;  // the same on all members
  int group_size = 1;
  std::uint64_t sequence = 0;  // in the group, from 1, the same on all members; messages are counted by each rank
  bool is_message = false;
  int peer = -1;  // of a message: the other rank of the group; of a rooted collective: the root; else -1
  std::uint64_t count = 0;
  DataType type = DataType::uint8;
  Algorithm algorithm = Algorithm::automatic;  // automatic: a message, which has none
  DataPath path = DataPath::frames;
  Compression compression;
  std::uint64_t bytes = 0;            // of this rank's input as DeepSpeed counts it: of a scatter, of its part
  std::uint64_t bandwidth_bytes = 0;  // that nccl-tests' algbw is about: of all ranks' parts where there are parts
  std::uint64_t wire_bytes = 0;       // sent by this rank, with headers and what others read in shared memory cells
  std::uint64_t payload_bytes = 0;    // of these, data
  std::uint64_t plain_bytes = 0;      // what the same data would have been uncompressed
  OperationTimes times;
  std::string error{};  // "": it succeeded

  double latency_ms() const { return static_cast<double>(times.ended_ns - times.posted_ns) * 1e-6; }
  // How many times less data was sent than uncompressed; 1 if nothing was.
  double compression_ratio() const {
    return payload_bytes == 0 ? 1 : static_cast<double>(plain_bytes) / static_cast<double>(payload_bytes);
  }
};

// What one rank's log holds, the operation that ended first in front.
struct RankLog {
  int rank = 0;  // in the job
  int world = 1;
  std::string host;
  std::string clock;                // ranks with the same one can compare their times as they are
  std::int64_t unix_offset_ns = 0;  // added to a time makes nanoseconds since 1970
  std::uint64_t dropped = 0;        // records that had to make room
  std::vector<OperationRecord> records;
};

namespace internal {
class LogStore;
}

// The log of a context, whose communicators share it (Communicator::log()). A handle: copies name the same log, which
// may be read after the context has ended. Thread-safe.
class OperationLog {
 public:
  explicit OperationLog(std::shared_ptr<internal::LogStore> store);

  // For what is posted from now on. Throws Error(invalid_argument), changing nothing, if the file can't be written.
  void configure(const LogOptions& options);
  LogOptions options() const;
  RankLog read() const;
  // Forgets all records.
  void clear();

 private:
  std::shared_ptr<internal::LogStore> store_;
};

}  // namespace qccl
