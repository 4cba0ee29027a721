// The communication log: for every operation of a rank its name, when it was posted, began and ended, and what it sent.
//
//   auto comm = qccl::init({.log = qccl::LogOptions{.enabled = true}});   // or QCCL_LOG_FILE=PREFIX in the environment
//   comm.all_reduce(gradient, {.log_name = "gradients"});
//   for (const auto& record : comm.log().read().records) ...
//
// qccl/log_report.h summarizes a log. docs/log.md shows how to read one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl {

// The names are those of DeepSpeed's `comms_logger`.
struct LogOptions {
  bool enabled = false;                 // whether operations are recorded
  bool verbose = false;                 // rank 0 writes a line to standard error for each operation that ends
  bool prof_all = true;                 // every operation; else those whose operation or name prof_ops lists
  std::vector<std::string> prof_ops{};  // "all_reduce", ...; also DeepSpeed's names, such as "all_gather_into_tensor"
  bool debug = false;                   // prefixes log_name with the operation; in Python it names the caller
  std::size_t capacity = 1'000'000;     // records kept, some 300 bytes each; the oldest are dropped for new ones
  std::string file{};                   // the context writes file + rank + ".json" when it ends, with what this process
                                        // has written there before; "": no file
  std::optional<int> rank{};            // this process's rank in the log, if not its rank in the job; only in init()
};

// Times of the machine's monotonic clock, which all ranks of one host share.
struct OperationTimes {
  std::int64_t posted_ns = 0;   // the program made the call
  std::int64_t started_ns = 0;  // its first data moved; 0 if none ever did
  std::int64_t ended_ns = 0;    // its results were ready, or it had failed

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
  std::string operation;       // "all_reduce", "send", ...
  std::string name;            // the call's log_name; without one, the operation
  std::string group;           // the group's name
  std::uint64_t group_id = 0;  // the same on all members
  int group_size = 1;          // its number of ranks
  std::uint64_t sequence = 0;  // in the group, from 1, the same on all members; each rank numbers its messages itself
  bool is_message = false;     // a send or a recv
  int peer = -1;               // of a message: the peer's rank in the group; of a rooted collective: the root; else -1
  std::uint64_t count = 0;     // elements, as the call gives them
  DataType type = DataType::uint8;             // of an element
  Algorithm algorithm = Algorithm::automatic;  // automatic for messages, which have no algorithm
  DataPath path = DataPath::frames;            // how the data travelled
  // Of device memory: "lanes", where the device computed, or "staged: " and why the host did; "": host memory
  std::string device{};
  Compression compression;            // as it was sent
  std::uint64_t bytes = 0;            // of this rank's input, as DeepSpeed counts it; of a scatter, of its part
  std::uint64_t bandwidth_bytes = 0;  // size in nccl-tests' algbw: of all ranks' parts, if there are parts
  std::uint64_t wire_bytes = 0;       // sent by this rank, with headers and bytes that peers read from its cells
  std::uint64_t payload_bytes = 0;    // the data among wire_bytes
  std::uint64_t plain_bytes = 0;      // size of the same data uncompressed
  OperationTimes times;               // posted, started, ended
  std::string error{};                // "": it succeeded

  // From posting to the end, in milliseconds.
  double latency_ms() const { return static_cast<double>(times.ended_ns - times.posted_ns) * 1e-6; }
  // Uncompressed size over the size sent; 1 if nothing was sent.
  double compression_ratio() const {
    return payload_bytes == 0 ? 1 : static_cast<double>(plain_bytes) / static_cast<double>(payload_bytes);
  }
};

// A field that files show in hexadecimal, because JSON's numbers are exact only up to 2^53.
template <class Number>
struct Hexadecimal {
  Number& number;  // the field itself
};

// Calls visit(name, field) for each field of a record; files and tables have the same names and order.
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, OperationRecord>
void visit_fields(Record& record, Visit visit) {
  visit("operation", record.operation);
  visit("name", record.name);
  visit("group", record.group);
  visit("group_id", Hexadecimal{record.group_id});
  visit("group_size", record.group_size);
  visit("sequence", record.sequence);
  visit("is_message", record.is_message);
  visit("peer", record.peer);
  visit("count", record.count);
  visit("type", record.type);
  visit("algorithm", record.algorithm);
  visit("path", record.path);
  visit("device", record.device);
  visit("compression", record.compression);
  visit("bytes", record.bytes);
  visit("bandwidth_bytes", record.bandwidth_bytes);
  visit("wire_bytes", record.wire_bytes);
  visit("payload_bytes", record.payload_bytes);
  visit("plain_bytes", record.plain_bytes);
  visit("posted_ns", record.times.posted_ns);
  visit("started_ns", record.times.started_ns);
  visit("ended_ns", record.times.ended_ns);
  visit("error", record.error);
}

// A round of training that synchronises every H steps (qccl::train::OuterLoop), as this rank saw it.
struct RoundRecord {
  std::uint64_t round = 0;     // from 0
  std::uint64_t fragment = 0;  // its index
  std::uint64_t step = 0;      // in which it ended
  int ranks = 0;               // that took part
  std::uint64_t bytes = 0;     // that this rank sent meanwhile
  double seconds_waited = 0;   // in which this rank did not train
  double seconds = 0;          // since the end of the round before
  double delta_norm = 0;       // of this rank's delta
  double residual_norm = 0;    // of this rank's residual, in units of the sum of the deltas
  std::int64_t ended_ns = 0;   // see OperationTimes
  // The share of `seconds` in which this rank trained.
  double computing() const { return seconds > 0 ? 1 - seconds_waited / seconds : 1; }

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The same for a round.
template <class Round, class Visit>
requires std::is_same_v<std::remove_const_t<Round>, RoundRecord>
void visit_fields(Round& round, Visit visit) {
  visit("round", round.round);
  visit("fragment", round.fragment);
  visit("step", round.step);
  visit("ranks", round.ranks);
  visit("bytes", round.bytes);
  visit("seconds_waited", round.seconds_waited);
  visit("seconds", round.seconds);
  visit("delta_norm", round.delta_norm);
  visit("residual_norm", round.residual_norm);
  visit("ended_ns", round.ended_ns);
}

// What compressing a tensor costs in a step, as this rank saw it (qccl.ddp.State measures gradients).
struct GaugeRecord {
  std::string name;           // the tensor's
  std::uint64_t step = 0;     // of the training
  Compression compression;    // that was measured
  std::uint64_t count = 0;    // elements of the tensor
  double bits = 0;            // an element, of one encoding
  double nmse = 0;            // of one encoding
  double cosine = 0;          // between the tensor and what it decodes to
  double residual = 0;        // its norm over the tensor's, before the step; 0 without error feedback
  std::int64_t ended_ns = 0;  // see OperationTimes

  friend bool operator==(const GaugeRecord&, const GaugeRecord&) = default;
};

// The same for a gauge.
template <class Gauge, class Visit>
requires std::is_same_v<std::remove_const_t<Gauge>, GaugeRecord>
void visit_fields(Gauge& gauge, Visit visit) {
  visit("name", gauge.name);
  visit("step", gauge.step);
  visit("compression", gauge.compression);
  visit("count", gauge.count);
  visit("bits", gauge.bits);
  visit("nmse", gauge.nmse);
  visit("cosine", gauge.cosine);
  visit("residual", gauge.residual);
  visit("ended_ns", gauge.ended_ns);
}

// One rank's log, in the order in which the operations ended.
struct RankLog {
  int rank = 0;                          // in the job
  int world = 1;                         // number of ranks of the job
  std::string host;                      // its name
  std::string clock;                     // times of ranks with equal clocks compare directly
  std::int64_t unix_offset_ns = 0;       // added to a time: nanoseconds since 1970
  std::uint64_t dropped = 0;             // records dropped for new ones
  std::vector<OperationRecord> records;  // operations
  std::vector<RoundRecord> rounds{};     // of training that synchronises every H steps
  std::vector<GaugeRecord> gauges{};     // of compressed tensors
};

// The same for all fields but the lists of records, which visit_lists() has.
template <class Log, class Visit>
requires std::is_same_v<std::remove_const_t<Log>, RankLog>
void visit_fields(Log& log, Visit visit) {
  visit("rank", log.rank);
  visit("world", log.world);
  visit("host", log.host);
  visit("clock", log.clock);
  visit("unix_offset_ns", log.unix_offset_ns);
  visit("dropped", log.dropped);
}

// Calls visit(list...) for each kind of record, with the lists of all `logs`: joining and trimming follow a new kind
// by themselves. A log here is a RankLog, or another type with the same lists.
template <class Visit, class... Logs>
void visit_lists(Visit visit, Logs&... logs) {
  visit(logs.records...);
  visit(logs.rounds...);
  visit(logs.gauges...);
}

// Adds the records of a later log of the same process: of its next job, say. The records are then in the order in which
// they ended. `log` gets the rank, host and clock of the later one, and the larger of both worlds.
void append(RankLog& log, RankLog later);

namespace internal {
class LogStore;
}

// The log of a context, whose communicators share it (Communicator::log()). A handle: copies name the same log, which
// may be read after the context has ended. Thread-safe.
class OperationLog {
 public:
  explicit OperationLog(std::shared_ptr<internal::LogStore> store);

  // Applies to operations posted from now on. If the file cannot be written, throws Error(invalid_argument) and changes
  // nothing.
  void configure(const LogOptions& options);
  LogOptions options() const;
  RankLog read() const;
  // Forgets all records, rounds and gauges.
  void clear();
  // Adds a round, if the log is enabled: OuterLoop's, or those of a training loop of your own.
  void add(const RoundRecord& round);
  // Adds a gauge, if the log is enabled.
  void add(const GaugeRecord& gauge);

 private:
  std::shared_ptr<internal::LogStore> store_;
};

}  // namespace qccl
