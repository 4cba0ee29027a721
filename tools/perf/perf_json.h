// The results as JSON: a header object and one entry per row and placement.
#pragma once

#include <string>
#include <vector>

#include "tools/perf/perf_table.h"

namespace qccl::tools {

struct PerfReport {
  std::vector<RankInfo> ranks;
  std::string description;  // of the communicator
  std::vector<Row> rows;
  Verdict verdict;
};

std::string json_text(const PerfOptions& options, const PerfReport& report);
// Writes it to --json's file, replacing the content. Returns "" on success, else the reason.
std::string write_json(const PerfOptions& options, const std::string& json);

}  // namespace qccl::tools
