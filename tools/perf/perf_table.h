// nccl-tests' table, character by character, followed by QCCL's columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/perf/perf_case.h"
#include "tools/perf/perf_measure.h"
#include "tools/perf/perf_options.h"

namespace qccl::tools {

// A rank's description of itself.
struct RankInfo {
  int pid = 0;
  int device = 0;
  char device_name[64] = {};
  char host[64] = {};
};

// A size, out of place and in place.
struct Row {
  Case shape;
  Measurement out_of_place;
  Measurement in_place;
};

// The result of the whole run.
struct Verdict {
  std::uint64_t failed_checks = 0;  // rows and placements
  double average_busbw = 0;
  double least_busbw = 0;  // NCCL_TESTS_MIN_BW; 0: no limit
  bool checks_ok() const { return failed_checks == 0; }
  bool bandwidth_ok() const { return average_busbw >= 0.9 * least_busbw; }
};

// Everything that the run measured.
struct PerfReport {
  std::vector<RankInfo> ranks;
  std::string description;  // of the communicator
  std::vector<Row> rows;
  Verdict verdict;
};

// As JSON: a header object, and one entry for each row and placement.
std::string json_text(const PerfOptions& options, const PerfReport& report);

// `number` in at most `width` characters: two decimals, one, none, or an exponent, whichever fits.
std::string fit(double number, int width);

// "none" if the case does not reduce, else the operation; and -1 if there is no root.
std::string op_name(const Case& c);
int root_of(const Case& c);

// Above all tables; `description` is Communicator::describe()'s.
std::string header(const PerfOptions& options, const std::vector<RankInfo>& ranks, const std::string& description);
// Above one table: its columns and, with several tables, its codec.
std::string table_heading(const PerfOptions& options, const std::optional<Compression>& compression);
std::string row_text(const PerfOptions& options, const Row& row);
std::string footer(const PerfOptions& options, const Verdict& verdict);

}  // namespace qccl::tools
