// QCCL_METRICS_FILE: a rank's counters in Prometheus' text format, for the textfile collector of node_exporter.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "qccl/status.h"

namespace qccl::comm {

// The file of a rank: the rank's number stands before the ending, "/run/qccl.prom" gives "/run/qccl-3.prom".
std::string metrics_path(const std::string& file, int rank);

// Writes a file anew every so often, from a thread of its own, from its construction to its destruction, which removes
// the file. Readers see whole files only.
class MetricsFile {
 public:
  // Asked on the thread; may throw std::bad_alloc.
  using Report = std::function<RankStatus()>;

  // InvalidArgument if nothing can be written there.
  static Status check(const std::string& path);

  MetricsFile(std::string path, Nanoseconds interval, Report report);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

 private:
  void serve();
  void write() const;

  const std::string path_;
  const Nanoseconds interval_;
  const Report report_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace qccl::comm
