// Logs of ranks as the library writes them (log_report.h's to_trace()), read back.
#pragma once

#include <qccl/qccl.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace qccl::tools {

using LogJson = nlohmann::json;

// Throws Error(invalid_argument): "PATH: WHAT".
[[noreturn]] void refuse_log(const std::string& path, const std::string& what);

// The document of the file. Throws Error(invalid_argument) naming the file if it can't be read or is no log.
LogJson parse_log(const std::string& path);
// Refuses a document that is no log, or of another version of the format.
void check_log(const std::string& path, const LogJson& document);

// What follows throws other exceptions on what it does not know.

// The ranks of a log, without their records.
std::vector<RankLog> heads_in(const LogJson& document);
// Adds the record of an event to `log`; leaves other events out.
void add_record(RankLog& log, const LogJson& event);

}  // namespace qccl::tools
