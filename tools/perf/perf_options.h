// `qccl perf`'s command line: nccl-tests' flags with their defaults, and QCCL's own.
#pragma once

#include <qccl/qccl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/perf/perf_case.h"

namespace qccl::tools {

// nccl-tests' exit codes.
enum PerfExit : int {
  kPerfOk = 0,
  kPerfInternalError = 1,
  kPerfLibraryError = 3,
  kPerfTimeout = 4,
  kPerfInvalidUsage = 6,
  kPerfWrongResult = 7,
  kPerfInvalidSizes = 255,
};

struct PerfOptions {
  Operation collective = Collective::all_reduce;
  std::uint64_t min_bytes = 32ull << 20;
  std::uint64_t max_bytes = 32ull << 20;
  std::uint64_t step_bytes = 1ull << 20;
  std::uint64_t step_factor = 1;  // used if above 1, else step_bytes
  int iterations = 20;
  int warmup_iterations = 1;
  int run_cycles = 1;  // 0: endless
  int check_iterations = 1;
  int blocking = 0;
  int average = 1;  // over ranks: 0 rank 0's, 1 mean, 2 smallest, 3 largest
  int root = 0;     // of rooted collectives; -1: every root
  bool timestamps = false;
  std::vector<DataType> types{DataType::float32};
  std::vector<ReduceOp> ops{ReduceOp::sum};

  int ranks = 1;                        // to start here, unless a launcher has
  DeviceKind device = DeviceKind::cpu;  // where buffers lie
  double timeout_seconds = 0;           // of each operation; 0: the library's
  Algorithm algorithm = Algorithm::automatic;
  std::vector<Compression> compressions;  // a table each; empty: one table with the environment's compression
  JobVariables job;
  std::string json_file;
  std::string plot_file;
};

// Fills `options` from the arguments after "perf", the collective first. Returns an exit code if the
// program should end here (help, or an error whose message lists the valid values).
std::optional<int> parse_perf_options(const std::vector<std::string>& arguments, PerfOptions& options);

// The specifications in "none,minmax:bits=4,bucket_size=128;cast": a comma ends one where no setting follows.
std::vector<std::string> split_compressions(const std::string& list);

// "float", "half"; "sum", "mulsum": nccl-tests' names.
std::string type_name(DataType type);
std::string op_name(ReduceOp op);

}  // namespace qccl::tools
