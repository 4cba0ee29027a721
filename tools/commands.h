// The commands of the `qccl` program.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace qccl::tools {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Each gets the arguments after its name and returns the exit code that its --help describes.
int codec_list_main(const std::vector<std::string>& arguments);
int codec_show_main(const std::vector<std::string>& arguments);
int codec_bench_main(const std::vector<std::string>& arguments);
int doctor_main(const std::vector<std::string>& arguments);
int log_main(const std::vector<std::string>& arguments);
int trace_main(const std::vector<std::string>& arguments);
int perf_main(const std::vector<std::string>& arguments);  // nccl-tests' exit codes; the collective comes first
int plan_check_main(const std::vector<std::string>& arguments);
int plan_show_main(const std::vector<std::string>& arguments);
int plan_simulate_main(const std::vector<std::string>& arguments);
int ps_main(const std::vector<std::string>& arguments);
int run_main(const std::vector<std::string>& arguments);

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>& arguments);
};

// Runs the command that the first argument names, or prints `help`. `program` begins messages.
int dispatch(const char* program, const char* help, std::span<const Command> commands,
             const std::vector<std::string>& arguments);

}  // namespace qccl::tools
