#include "job/status/metrics_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <utility>

#include "base/log.h"

namespace qccl::comm {
namespace {

// The collector reads only names that end in .prom.
std::string unfinished(const std::string& path) { return path + ".tmp"; }

}  // namespace

std::string metrics_path(const std::string& file, int rank) {
  const std::filesystem::path path(file);
  const std::string name = fmt::format("{}-{}{}", path.stem().string(), rank, path.extension().string());
  return (path.parent_path() / name).string();
}

Status MetricsFile::check(const std::string& path) {
  std::error_code ignored;
  const bool is_written = static_cast<bool>(std::ofstream(unfinished(path)) << std::flush);
  std::filesystem::remove(unfinished(path), ignored);
  if (is_written) return {};
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("QCCL_METRICS_FILE: {} can't be written: make its folder, or give another name", path));
}

MetricsFile::MetricsFile(std::string path, Nanoseconds interval, Report report)
    : path_(std::move(path)), interval_(interval), report_(std::move(report)), thread_([this] { serve(); }) {}

MetricsFile::~MetricsFile() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(unfinished(path_), ignored);
}

void MetricsFile::serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    try {
      write();
    } catch (const std::bad_alloc&) {  // the last file stays
    }
    lock.lock();
    stop_.wait_for(lock, interval_, [this] { return stopping_; });
  }
}

void MetricsFile::write() const {
  const RankStatus status = report_();
  std::ofstream file(unfinished(path_), std::ios::trunc);
  file << to_prometheus({&status, 1}) << std::flush;
  const bool is_written = static_cast<bool>(file);
  file.close();
  std::error_code error;
  if (is_written) std::filesystem::rename(unfinished(path_), path_, error);
  if (!is_written || error) log(LogLevel::warning, fmt::format("the metrics can't be written to {}", path_));
}

}  // namespace qccl::comm
