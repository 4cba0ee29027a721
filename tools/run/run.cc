// `qccl run`: starts a program as the ranks of one job.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tools/command_line.h"
#include "tools/run/launcher.h"

namespace qccl::tools {
namespace {

constexpr int kMaxRanks = 4096;

constexpr const char* kRunFooter =
    R"(Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
torchrun sets them, and OMP_NUM_THREADS=1 unless it is set. Rank 0 reads qccl run's standard input.

On several hosts, torchrun, mpirun or srun starts the ranks: docs/launchers.md shows how.

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
  qccl run -n 8 --bind-to core --log-dir logs --env HF_TOKEN -- ./trainer
)";

struct RunFlags {
  int ranks = 0;
  bool tag_output = false;
  std::string log_folder;
  std::string bind_to = "none";
  std::vector<std::string> variables;
  double timeout = 0;
  double grace = 5;
  JobVariables job;
};

// Flags of launchers for several hosts. The parser calls these functions before it reports that --ranks is missing.
void refuse_host_flags(CLI::App& app) {
  for (const std::string flag : {"--host", "--hosts", "--hostfile", "--master-addr", "--ssh"}) {
    const auto refuse = [flag](const std::string&) {
      throw CLI::ValidationError(flag,
                                 "qccl run starts ranks on this host only: "
                                 "for several hosts use torchrun, mpirun or srun (docs/launchers.md)");
    };
    app.add_option_function<std::string>(flag, refuse)->expected(0, 1)->group("");
  }
}

void add_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-n,--ranks", flags.ranks, "Number of ranks to start")->required()->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--tag-output", flags.tag_output, "Begin each line of output with '[rank]: '");
  app.add_option("--log-dir", flags.log_folder, "Also write what each rank says to DIR/rank<r>.log here");
  app.add_option("--env", flags.variables, "NAME=VALUE, or NAME with its value here: for all ranks")
      ->allow_extra_args(false);
  app.add_option("--bind-to", flags.bind_to, "core: each rank keeps to its share of the cores; none")
      ->check(CLI::IsMember({"core", "none"}));
  add_seconds(app, "--timeout", flags.timeout, CLI::PositiveNumber,
              "End the job after so many seconds (default: never)");
  add_seconds(app, "--grace", flags.grace, CLI::NonNegativeNumber, "Seconds between SIGTERM and SIGKILL")
      ->capture_default_str();
  add_job_flags(app, flags.job);
  refuse_host_flags(app);
}

// ---- from flags to options; std::invalid_argument names the invalid flag

void set_variable(Variables& variables, const std::string& name, const std::string& value) {
  std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
  variables.emplace_back(name, value);
}

void add_given(const std::vector<std::string>& given, Variables& variables) {
  for (const std::string& text : given) {
    const std::string name = text.substr(0, text.find('='));
    const char* value = name.size() < text.size() ? text.c_str() + name.size() + 1 : std::getenv(name.c_str());
    if (name.empty() || value == nullptr) {
      throw std::invalid_argument(fmt::format("--env: '{}' is not set here: give --env NAME=VALUE", text));
    }
    if (name == "QCCL_KEY" && name.size() < text.size()) {
      throw std::invalid_argument(
          "--env: QCCL_KEY=VALUE would show the key to every user in ps: set QCCL_KEY_FILE, or QCCL_KEY in the "
          "environment of qccl run");
    }
    set_variable(variables, name, value);
  }
}

LaunchOptions launch_options(const RunFlags& flags, std::vector<std::string> command) {
  LaunchOptions options{.ranks = flags.ranks,
                        .command = std::move(command),
                        .bind_to_cores = flags.bind_to == "core",
                        .tag_output = flags.tag_output,
                        .log_folder = flags.log_folder,
                        .timeout = to_milliseconds(flags.timeout),
                        .grace = to_milliseconds(flags.grace)};
  add_given(flags.variables, options.variables);
  for (const auto& [name, value] : flags.job.variables()) set_variable(options.variables, name, value);
  return options;
}

}  // namespace

int run_main(const std::vector<std::string>& arguments) {
  CommandLine app("Starts PROGRAM as the ranks of one job on this host, and ends them as one.", "qccl run",
                  "-n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]", kRunFooter);
  app.prefix_command();
  RunFlags flags;
  add_flags(app, flags);

  // Everything after "--" belongs to the program, whatever it looks like.
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  if (const auto code = app.read({arguments.begin(), mark})) return *code;
  std::vector<std::string> command = app.remaining();
  if (!command.empty() && command.front().starts_with('-')) {
    fmt::print(stderr, "qccl run: there is no flag '{}'; 'qccl run --help' lists them\n", command.front());
    return kExitUsage;
  }
  const bool mark_is_ours = command.empty() && mark != arguments.end();
  command.insert(command.end(), mark_is_ours ? mark + 1 : mark, arguments.end());
  if (command.empty()) {
    fmt::print(stderr, "qccl run: no program to run: qccl run -n {} -- PROGRAM ARGUMENTS\n", std::max(1, flags.ranks));
    return kExitUsage;
  }
  try {
    return launch(launch_options(flags, std::move(command)));
  } catch (const std::invalid_argument& wrong) {
    fmt::print(stderr, "qccl run: {}\n", wrong.what());
    return kExitUsage;
  }
}

}  // namespace qccl::tools
