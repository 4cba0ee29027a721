#include "observe/log_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "base/digest/digest.h"
#include "base/log.h"
#include "qccl/log_report.h"

namespace qccl {

OperationLog::OperationLog(std::shared_ptr<internal::LogStore> store) : store_(std::move(store)) {}
void OperationLog::configure(const LogOptions& options) { store_->configure(options).take_or_throw(); }
LogOptions OperationLog::options() const { return store_->options(); }
RankLog OperationLog::read() const { return store_->read(); }
void OperationLog::clear() { store_->clear(); }
void OperationLog::add(const RoundRecord& round) { store_->add(round); }
void OperationLog::add(const GaugeRecord& gauge) { store_->add(gauge); }

std::string_view to_string(DataPath path) {
  switch (path) {
    case DataPath::frames: return "frames";
    case DataPath::board: return "board";
    case DataPath::shared_buffer: break;
  }
  return "shared_buffer";
}

}  // namespace qccl

namespace qccl::internal {
namespace {

// Torch's and DeepSpeed's names of operations with another name here.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"all_gather_single", "all_gather"},
    {"reduce_scatter_single", "reduce_scatter"},
    {"all_gather_into_tensor", "all_gather"},
    {"all_gather_object", "all_gather"},
    {"reduce_scatter_tensor", "reduce_scatter"},
    {"all_to_all_single", "all_to_all"},
    {"all_reduce_coalesced", "all_reduce"},
    {"inference_all_reduce", "all_reduce"},
    {"broadcast_object_list", "broadcast"},
    {"monitored_barrier", "barrier"},
    {"isend", "send"},
    {"irecv", "recv"},
};

bool names(std::string_view listed, std::string_view operation, std::string_view name) {
  if (listed == operation || (!name.empty() && listed == name)) return true;
  return std::ranges::find(kAliases, std::pair(listed, operation)) != std::end(kAliases);
}

// The logs that this process has written or will write, by their files: a program may join several jobs under one rank,
// one after another or at the same time. Never destroyed, because threads may end a job after main().
struct OwnFiles {
  std::mutex mutex;  // guards what follows, and the writing of the files
  std::map<std::string, RankLog> by_path;
};

OwnFiles& own_files() {
  static auto* const only = new OwnFiles;
  return *only;
}

// Adds the records of a job that ended after the others to theirs.
void append(RankLog& all, RankLog ended, std::size_t capacity) {
  if (all.records.empty() && all.dropped == 0) {
    all = std::move(ended);
    return;
  }
  all.world = std::max(all.world, ended.world);
  all.dropped += ended.dropped;
  std::ranges::move(ended.records, std::back_inserter(all.records));
  std::ranges::move(ended.rounds, std::back_inserter(all.rounds));
  std::ranges::move(ended.gauges, std::back_inserter(all.gauges));
  std::ranges::stable_sort(all.records, {}, [](const OperationRecord& each) { return each.times.ended_ns; });
  const std::size_t surplus = all.records.size() - std::min(all.records.size(), capacity);
  all.records.erase(all.records.begin(), all.records.begin() + static_cast<std::ptrdiff_t>(surplus));
  all.dropped += surplus;
}

}  // namespace

std::string LogStore::path(const LogOptions& options) const {
  return fmt::format("{}{}.json", options.file, identity_.rank);
}

// Opens the file now, not after hours whose log would then be lost. A file that is new to this process is emptied, so
// that an earlier job's contents are not taken for the log of a rank of this job that was killed.
Status LogStore::claim(const std::string& path) const {
  const std::lock_guard lock(own_files().mutex);
  auto& files = own_files().by_path;
  const auto mode = files.contains(path) ? std::ios::app : std::ios::trunc;
  if (std::ofstream(path, mode)) {
    files[path];
    return {};
  }
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("QCCL rank {}: the log can't be written to {}: make its folder, or give another name "
                             "(QCCL_LOG_FILE, LogOptions::file)",
                             identity_.rank, path));
}

Status LogStore::configure(const LogOptions& options) {
  const std::lock_guard lock(mutex_);
  if (!options.file.empty()) QCCL_TRY(claim(path(options)));
  options_ = options;
  mode_.store(!options.enabled ? Mode::off : options.prof_all ? Mode::all : Mode::listed, std::memory_order_relaxed);
  make_room();
  return {};
}

Status LogStore::write_file() const {
  const LogOptions chosen = options();
  if (chosen.file.empty()) return {};
  const std::string name = path(chosen);
  const std::lock_guard lock(own_files().mutex);
  RankLog& all = own_files().by_path[name];
  append(all, read(), chosen.capacity);
  std::ofstream file(name);
  file << to_trace({&all, 1}) << std::flush;
  if (file) return {};
  return Failure(ErrorKind::resource_exhausted,
                 fmt::format("rank {}: can't write the log to {}", identity_.rank, name));
}

LogOptions LogStore::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

bool LogStore::wants(std::string_view operation, std::string_view name) const {
  const Mode mode = mode_.load(std::memory_order_relaxed);
  if (mode != Mode::listed) return mode == Mode::all;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(options_.prof_ops, [&](const auto& listed) { return names(listed, operation, name); });
}

void LogStore::make_room() {
  while (records_.size() > options_.capacity) {
    records_.pop_front();
    ++dropped_;
  }
  while (rounds_.size() > options_.capacity) rounds_.pop_front();
  while (gauges_.size() > options_.capacity) gauges_.pop_front();
}

void LogStore::add(OperationRecord record) {
  record.group_id = digest(record.group_id, identity_.job);
  if (record.name.empty()) record.name = record.operation;
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    if (options_.debug && record.name != record.operation) {
      record.name = fmt::format("{} | {}", record.operation, record.name);
    }
    if (options_.verbose && identity_.rank == 0) line = verbose_line(record);
    records_.push_back(std::move(record));
    make_room();
  }
  if (!line.empty()) write_line(line);
}

void LogStore::add(const RoundRecord& round) {
  if (!is_on()) return;
  const std::lock_guard lock(mutex_);
  rounds_.push_back(round);
  make_room();
}

void LogStore::add(const GaugeRecord& gauge) {
  if (!is_on()) return;
  const std::lock_guard lock(mutex_);
  gauges_.push_back(gauge);
  make_room();
}

RankLog LogStore::read() const {
  const std::lock_guard lock(mutex_);
  return {.rank = identity_.rank,
          .world = identity_.world,
          .host = identity_.host,
          .clock = identity_.clock,
          .unix_offset_ns = identity_.unix_offset_ns,
          .dropped = dropped_,
          .records = {records_.begin(), records_.end()},
          .rounds = {rounds_.begin(), rounds_.end()},
          .gauges = {gauges_.begin(), gauges_.end()}};
}

void LogStore::clear() {
  const std::lock_guard lock(mutex_);
  records_.clear();
  rounds_.clear();
  gauges_.clear();
  dropped_ = 0;
}

}  // namespace qccl::internal
