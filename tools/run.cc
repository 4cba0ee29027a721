#include "run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "command_line.h"
#include "launcher.h"

namespace qccl::tools {
namespace {

constexpr int kExitUsage = 2;

constexpr const char* kFooter =
    R"(Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
torchrun sets them, and OMP_NUM_THREADS=1 unless it is set. Rank 0 reads qccl run's standard input.

The first rank that fails ends the job: the others get SIGTERM, after the grace SIGKILL, and so
does everything they started. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on and begin the
grace; a second one kills at once. SIGUSR1, SIGUSR2 and others are only passed on.

Exit code: 0 if all ranks ended with 0; else the first failed rank's (128 + signal if a signal
ended it); 124 on --timeout; 127 if there is no such program, 126 if it can't be executed; 2 for
wrong flags.

Examples:
  qccl run -n 4 -- python train.py --epochs 3
  qccl run -n 4 --tag-output --link-rate 1gbit --compression minmax:bits=4 -- ./trainer
  qccl run -n 2 --timeout 60 -- python -m pytest tests/two_ranks.py
)";

struct RunFlags {
  int ranks = 0;
  bool tag_output = false;
  double timeout = 0;
  double grace = 5;
  JobVariables job;
};

void add_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-n,--ranks", flags.ranks, "Number of ranks to start")->required()->check(CLI::Range(1, 4096));
  app.add_flag("--tag-output", flags.tag_output, "Begin each line of output with '[rank]: '");
  app.add_option("--timeout", flags.timeout, "End the job after so many seconds (default: never)")
      ->check(CLI::PositiveNumber);
  app.add_option("--grace", flags.grace, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_job_flags(app, flags.job);
}

LaunchOptions launch_options(const RunFlags& flags) {
  LaunchOptions options;
  options.ranks = flags.ranks;
  options.tag_output = flags.tag_output;
  options.timeout = to_milliseconds(flags.timeout);
  options.grace = to_milliseconds(flags.grace);
  options.variables = flags.job.variables();
  return options;
}

int wrong_flag(const std::string& flag) {
  fmt::print(stderr, "qccl run: there is no flag '{}'; 'qccl run --help' lists them\n", flag);
  return kExitUsage;
}

}  // namespace

int run_main(const std::vector<std::string>& arguments) {
  CLI::App app("Starts PROGRAM as local ranks of one job and ends them as one.", "qccl run");
  set_usage(app, "qccl run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  app.footer(kFooter);
  app.prefix_command();
  RunFlags flags;
  add_flags(app, flags);

  // What is behind "--" is the program's, whatever it looks like.
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  if (const auto code = parse(app, {arguments.begin(), mark}, kExitUsage)) return *code;
  std::vector<std::string> command = app.remaining();
  if (!command.empty() && command.front().starts_with('-')) return wrong_flag(command.front());
  const bool mark_is_ours = command.empty() && mark != arguments.end();
  command.insert(command.end(), mark_is_ours ? mark + 1 : mark, arguments.end());
  if (command.empty()) {
    fmt::print(stderr, "qccl run: no program to run: qccl run -n {} -- PROGRAM ARGUMENTS\n", flags.ranks);
    return kExitUsage;
  }
  return launch(launch_options(flags), command);
}

}  // namespace qccl::tools
