// Reads back the files that logs are written to.
#pragma once

#include <qccl/qccl.h>

#include <string>
#include <vector>

namespace qccl::tools {

// The ranks of all files, in their order. An empty file, which a killed rank leaves, is said to be one and left out.
// Throws Error(invalid_argument) naming the file, if one can't be read, is no log of QCCL, or has a rank that another
// file has, and if all are empty.
std::vector<RankLog> read_logs(const std::vector<std::string>& paths);

// Empty, or why not.
std::string write_text(const std::string& path, const std::string& text);

}  // namespace qccl::tools
