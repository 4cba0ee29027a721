#include "tools/run/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "tools/command_line.h"
#include "tools/run/launcher.h"

namespace qccl::tools {
namespace {

constexpr int kExitUsage = 2;

constexpr int kMaxRanks = 4096;

constexpr const char* kFooter =
    R"(Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
torchrun sets them, and OMP_NUM_THREADS=1 unless it is set. Rank 0 reads qccl run's standard input.

A hostfile has lines 'HOST slots=N max_slots=M' or 'HOST:N'; '#' begins a comment. Hosts are filled
in its order. qccl must be at the same place on all of them; ranks run in this folder and get PATH,
LD_LIBRARY_PATH, VIRTUAL_ENV and what begins with QCCL_, NCCL_, PYTHON or OMP_ from here, and what
--env names. --ssh names what is called with HOST and a shell's command line.

The first rank that fails ends the job: the others get SIGTERM, after the grace SIGKILL, and so
does everything they started. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on and begin the
grace; a second one kills at once. SIGUSR1, SIGUSR2 and others are only passed on. Ranks on other
hosts are killed there as soon as their connection to qccl run ends.

Exit code: 0 if all ranks ended with 0; else the first failed rank's (128 + signal if a signal
ended it); 124 on --timeout; 127 if there is no such program, 126 if it can't be executed; 255 if
a host can't be reached or is lost; 2 for wrong flags.

Examples:
  qccl run -n 4 -- python train.py --epochs 3
  qccl run -n 4 --tag-output --link-rate 1gbit --compression minmax:bits=4 -- ./trainer
  qccl run -n 2 --timeout 60 -- python -m pytest tests/two_ranks.py
  qccl run --hostfile hosts.txt --log-dir logs -- python train.py
  qccl run --hosts node1:8,node2:8 --bind-to core --env HF_TOKEN -- ./trainer
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
  std::string hostfile;
  std::string hosts;
  std::string master_address;
  std::string ssh = "ssh -o BatchMode=yes";
  double host_timeout = 60;
};

void add_host_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--hostfile", flags.hostfile, "Hosts and how many ranks each takes");
  app.add_option("--hosts", flags.hosts,
                 "The same as a list, say node1:2,node2:2; with --hostfile: which of its hosts");
  app.add_option("--ssh", flags.ssh, "How to run a command on another host")->capture_default_str();
  app.add_option("--master-addr", flags.master_address, "Rank 0's address (default: the first host's name)");
  app.add_option("--host-timeout", flags.host_timeout, "A host is lost after so many seconds of silence")
      ->check(CLI::PositiveNumber)
      ->check(finite_number())
      ->capture_default_str();
}

void add_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-n,--ranks", flags.ranks, "Number of ranks to start (default with hosts: all slots)")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--tag-output", flags.tag_output, "Begin each line of output with '[rank]: '");
  app.add_option("--log-dir", flags.log_folder, "Also write what each rank says to DIR/rank<r>.log here");
  app.add_option("--env", flags.variables, "NAME=VALUE, or NAME with its value here: for all ranks")
      ->allow_extra_args(false);
  app.add_option("--bind-to", flags.bind_to, "core: each rank keeps to its share of the host's cores; none")
      ->check(CLI::IsMember({"core", "none"}));
  app.add_option("--timeout", flags.timeout, "End the job after so many seconds (default: never)")
      ->check(CLI::PositiveNumber)
      ->check(finite_number());
  app.add_option("--grace", flags.grace, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::NonNegativeNumber)
      ->check(finite_number())
      ->capture_default_str();
  add_job_flags(app, flags.job);
  add_host_flags(app, flags);
}

// ---- from flags to options; std::invalid_argument says which is wrong

void set_variable(Variables& variables, const std::string& name, const std::string& value) {
  std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
  variables.emplace_back(name, value);
}

// What ranks on other hosts get from this one's environment.
void forward_environment(Variables& variables) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    bool wanted = name == "PATH" || name == "LD_LIBRARY_PATH" || name == "VIRTUAL_ENV";
    for (const char* prefix : {"QCCL_", "NCCL_", "PYTHON", "OMP_"}) wanted = wanted || name.starts_with(prefix);
    if (wanted) set_variable(variables, name, std::string(text.substr(name.size() + 1)));
  }
}

void add_given(const std::vector<std::string>& given, Variables& variables) {
  for (const std::string& text : given) {
    const std::string name = text.substr(0, text.find('='));
    const char* value = name.size() < text.size() ? text.c_str() + name.size() + 1 : std::getenv(name.c_str());
    if (name.empty() || value == nullptr) {
      throw std::invalid_argument(fmt::format("--env: '{}' is not set here: give --env NAME=VALUE", text));
    }
    set_variable(variables, name, value);
  }
}

std::vector<Host> hosts_of(const RunFlags& flags) {
  if (flags.hostfile.empty()) return flags.hosts.empty() ? std::vector<Host>() : parse_host_list(flags.hosts);
  std::ifstream file(flags.hostfile);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw std::invalid_argument(fmt::format("--hostfile: can't read '{}'", flags.hostfile));
  const auto hosts = parse_hostfile(text, flags.hostfile);
  return flags.hosts.empty() ? hosts : choose_hosts(hosts, flags.hosts, flags.hostfile);
}

std::string master_address(const RunFlags& flags, const std::vector<HostShare>& shares) {
  if (!flags.master_address.empty()) return flags.master_address;
  const std::string address = address_of(shares.front().host.name);
  if (shares.size() == 1 || !is_loopback(address)) return address;
  throw std::invalid_argument(
      fmt::format("{}: other hosts can't reach rank 0 at '{}': name the host as they know it, or give --master-addr",
                  shares.front().host.where, address));
}

void add_hosts(const RunFlags& flags, LaunchOptions& options) {
  const auto hosts = hosts_of(flags);
  JobPart& part = options.part;
  if (hosts.empty()) {
    if (flags.ranks == 0) throw std::invalid_argument("how many ranks? Give --ranks, --hosts or --hostfile");
    part.world = part.ranks = flags.ranks;
    return;
  }
  options.hosts = place_ranks(hosts, flags.ranks > 0 ? std::optional(flags.ranks) : std::nullopt);
  part.world = options.hosts.back().first_rank + options.hosts.back().ranks;
  if (options.hosts.size() == 1 && is_this_host(options.hosts[0].host.name)) {
    part.ranks = part.world;
    return options.hosts.clear();
  }
  part.master_address = master_address(flags, options.hosts);
  part.folder = std::filesystem::current_path();
  forward_environment(part.variables);
}

LaunchOptions launch_options(const RunFlags& flags, std::vector<std::string> command) {
  LaunchOptions options;
  options.part.command = std::move(command);
  add_hosts(flags, options);
  add_given(flags.variables, options.part.variables);
  for (const auto& [name, value] : flags.job.variables()) set_variable(options.part.variables, name, value);
  options.part.bind_to_cores = flags.bind_to == "core";
  options.tag_output = flags.tag_output;
  options.log_folder = flags.log_folder;
  options.limits = {to_milliseconds(flags.timeout), to_milliseconds(flags.grace)};
  std::istringstream words(flags.ssh);
  options.ssh.assign(std::istream_iterator<std::string>(words), {});
  if (options.ssh.empty()) throw std::invalid_argument("--ssh: no command is given");
  options.host_timeout = to_milliseconds(flags.host_timeout);
  return options;
}

int wrong_flag(const std::string& flag) {
  fmt::print(stderr, "qccl run: there is no flag '{}'; 'qccl run --help' lists them\n", flag);
  return kExitUsage;
}

}  // namespace

int run_main(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--agent"}) return launch_agent();
  CLI::App app("Starts PROGRAM as the ranks of one job, here or on several hosts, and ends them as one.", "qccl run");
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
