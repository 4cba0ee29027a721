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

namespace {

std::int64_t ended(const OperationRecord& record) { return record.times.ended_ns; }
template <class Record>
std::int64_t ended(const Record& record) {
  return record.ended_ns;
}

}  // namespace

void append(RankLog& log, RankLog later) {
  const auto time = [](const auto& record) { return ended(record); };
  const auto join = [&](auto& earlier, auto& added) {
    earlier.insert(earlier.end(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
    if (!std::ranges::is_sorted(earlier, {}, time)) std::ranges::stable_sort(earlier, {}, time);
  };
  visit_lists(join, log, later);
  log.rank = later.rank;
  log.world = std::max(log.world, later.world);
  log.host = std::move(later.host);
  log.clock = std::move(later.clock);
  log.unix_offset_ns = later.unix_offset_ns;
  log.dropped += later.dropped;
}

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

// Drops the oldest records of each list beyond `capacity`. Returns how many operations these were.
template <class Lists>
std::uint64_t trim(Lists& lists, std::size_t capacity) {
  const std::size_t operations = lists.records.size();
  const auto drop = [&](auto& list) {
    const std::size_t surplus = list.size() - std::min(list.size(), capacity);
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(surplus));
  };
  visit_lists(drop, lists);
  return operations - lists.records.size();
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
  append(all, read());
  all.dropped += trim(all, chosen.capacity);
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

void LogStore::make_room() { dropped_ += trim(lists_, options_.capacity); }

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
    lists_.records.push_back(std::move(record));
    ++added_.operations;
    make_room();
  }
  if (!line.empty()) write_line(line);
}

template <class Record>
void LogStore::add_measured(std::deque<Record>& list, std::uint64_t& added, const Record& record) {
  if (!is_on()) return;
  const std::lock_guard lock(mutex_);
  list.push_back(record);
  ++added;
  make_room();
}

void LogStore::add(const RoundRecord& round) { add_measured(lists_.rounds, added_.rounds, round); }
void LogStore::add(const GaugeRecord& gauge) { add_measured(lists_.gauges, added_.gauges, gauge); }

// Without records. With mutex_ held.
RankLog LogStore::head() const {
  return {.rank = identity_.rank,
          .world = identity_.world,
          .host = identity_.host,
          .clock = identity_.clock,
          .unix_offset_ns = identity_.unix_offset_ns,
          .dropped = dropped_,
          .records = {}};
}

RankLog LogStore::read() const {
  const std::lock_guard lock(mutex_);
  RankLog log = head();
  visit_lists([](auto& copy, const auto& kept) { copy.assign(kept.begin(), kept.end()); }, log, lists_);
  return log;
}

RankLog LogStore::read_since(Seen& seen) const {
  const std::lock_guard lock(mutex_);
  RankLog log = head();
  const auto take = [](auto& copy, const auto& kept, std::uint64_t fresh) {
    copy.assign(kept.end() - static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(fresh, kept.size())), kept.end());
  };
  take(log.records, lists_.records, added_.operations - seen.operations);
  take(log.rounds, lists_.rounds, added_.rounds - seen.rounds);
  take(log.gauges, lists_.gauges, added_.gauges - seen.gauges);
  seen = added_;
  return log;
}

void LogStore::clear() {
  const std::lock_guard lock(mutex_);
  visit_lists([](auto& list) { list.clear(); }, lists_);
  dropped_ = 0;
}

}  // namespace qccl::internal
