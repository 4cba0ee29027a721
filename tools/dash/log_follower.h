// Reads the logs of ranks while they grow, each record once, into a JobView.
//
// to_trace() writes a line for each record, so a file is read from where it was left. A file that has been replaced or
// written in another order makes the follower read all files again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dashboard/job_view.h"
#include "qccl/log.h"

namespace qccl::tools {

class LogFollower {
 public:
  // `names`: files, or prefixes as in QCCL_LOG_FILE, whose files may come later. `view` must outlive the follower.
  LogFollower(std::vector<std::string> names, dashboard::JobView& view);

  // Adds what has come since the last call. Returns whether there was anything.
  bool poll();

 private:
  // One file, as far as it has been read.
  struct File {
    std::string path;
    std::uint64_t offset = 0;  // after the last record that was read, 0: nothing was
    std::uint64_t size = 0;
    int short_polls = 0;       // in a row in which it was shorter than `offset`
    std::int64_t written = 0;  // when, by its file system
    std::string head{};        // its first line
    std::string last{};        // the last record's line
    bool is_refused = false;   // it is no log
    std::map<int, RankLog> ranks{};
  };

  void look_for_files();
  // Whether the file has grown since, and still begins as it did. Sets `must_restart_` if not.
  bool has_grown(File& file);
  bool read(File& file);
  bool read_head(File& file, const std::string& line);
  void read_record(File& file, const std::string& line);
  void refuse(File& file, const std::string& why);

  const std::vector<std::string> names_;
  dashboard::JobView& view_;
  std::map<std::string, File> files_;
  bool must_restart_ = false;
};

}  // namespace qccl::tools
