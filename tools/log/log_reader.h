// Reads back the files that logs are written to.
#pragma once

#include <qccl/qccl.h>

#include <string>
#include <vector>

namespace qccl::tools {

// The ranks of all files, in rank order. An empty file, which a killed rank leaves, is reported and skipped. Throws
// Error(invalid_argument) naming the file if one can't be read, is not a QCCL log, or repeats a rank of another file;
// also throws if all files are empty.
std::vector<RankLog> read_logs(const std::vector<std::string>& paths);

}  // namespace qccl::tools
