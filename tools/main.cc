// The `qccl` program: picks the command. Under one of nccl-tests' names, such as all_reduce_perf, it is `qccl perf
// all_reduce`.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <cstdio>

#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kHelp = R"(QCCL, the compressed collective communication library.

Usage: qccl COMMAND [OPTIONS]

Commands:
  run         start a program as the ranks of one job on this host
  ps          show what the ranks on this host, or of whole jobs, are doing, and which ranks they wait for
  top         the same of whole jobs, live
  perf        time a collective and check its results, with nccl-tests' flags and columns
  key         make a key, without which no process can join a job
  doctor      show what QCCL finds here and what it would do; say what is wrong and how to fix it
  plan        check, show, price and simulate the plans of collectives
  codec       list, explain and measure the codecs
  log         sum up, draw and export what ranks have logged
  dash        serve a page that shows a job: ranks over time, stragglers, bytes, compression
  trace       merge ranks' logs into one trace
  version     print the version, the compiler, the processor and the torch that is installed
  completion  print a script that completes commands and flags in a shell

'qccl COMMAND --help' has the flags and examples of a command.

Examples:
  qccl run -n 4 -- python train.py
  qccl doctor
  qccl perf all_reduce -b 4 -e 64M -f 2 -g 4
  qccl perf all_reduce -b 64M -e 64M -g 4 --compression minmax:bits=4 --link-rate 1gbit

Exit code: the command's; 2 if there is no such command.
)";

constexpr const char* kPlanHelp = R"(Plans of collectives: checked, explained, priced and simulated.

Usage: qccl plan COMMAND [OPTIONS]

Commands:
  check      run every plan symbolically and report what is wrong with it, if anything
  outer      how often ranks on slow lines can synchronise, and still compute
  show       what a call would become: algorithm, steps, bytes, predicted time
  simulate   run the engine for many ranks over a simulated network

'qccl plan COMMAND --help' has the flags and examples of a command.

Examples:
  qccl plan check
  qccl plan show all_reduce --world 8 --bytes 64M
  qccl plan outer --parameters 10M --world 4 --rate 50mbit --latency 20ms --step-seconds 0.4s
  qccl plan simulate --world 512 --hosts 64 --rate 10gbit --latency 50us all_reduce -b 1K -e 256M

Exit code: the command's; 2 if there is no such command.
)";

constexpr const char* kCodecHelp = R"(Codecs: which exist, their layouts, their errors and their speeds.

Usage: qccl codec COMMAND [OPTIONS]

Commands:
  list    all codecs with their settings
  show    one codec: layout, bits an element, error bound, source
  bench   error, size and speed of codecs on synthetic data or on a file of floats

'qccl codec COMMAND --help' has the flags and examples of a command.

Examples:
  qccl codec list
  qccl codec show minmax:bits=3
  qccl codec bench --codecs minmax:bits=4 cast --data gradients.f32

Exit code: the command's; 2 if there is no such command.
)";

int plan_main(const std::vector<std::string>& arguments) {
  constexpr Command kCommands[] = {{"check", plan_check_main},
                                   {"outer", plan_outer_main},
                                   {"show", plan_show_main},
                                   {"simulate", plan_simulate_main}};
  return dispatch("qccl plan", kPlanHelp, kCommands, arguments);
}

int codec_main(const std::vector<std::string>& arguments) {
  constexpr Command kCommands[] = {{"list", codec_list_main}, {"show", codec_show_main}, {"bench", codec_bench_main}};
  return dispatch("qccl codec", kCodecHelp, kCommands, arguments);
}

constexpr Command kCommands[] = {{"run", run_main},
                                 {"ps", ps_main},
                                 {"top", top_main},
                                 {"key", key_main},
                                 {"perf", perf_main},
                                 {"doctor", doctor_main},
                                 {"plan", plan_main},
                                 {"codec", codec_main},
                                 {"log", log_main},
                                 {"dash", dash_main},
                                 {"trace", trace_main},
                                 {"version", version_main},
                                 {"completion", completion_main}};

}  // namespace

namespace {

// Prints what may follow the words after kCompleteFlag: names of commands, or what the command itself says.
int complete(std::span<const Command> commands, const std::vector<std::string>& arguments) {
  if (arguments.size() == 1) {
    for (const Command& command : commands) fmt::print("{}\n", command.name);
    return 0;
  }
  for (const Command& command : commands) {
    if (arguments[1] != command.name) continue;
    std::vector<std::string> words = {kCompleteFlag};
    words.insert(words.end(), arguments.begin() + 2, arguments.end());
    return command.run(words);
  }
  return kExitUsage;
}

}  // namespace

int dispatch(const char* program, const char* help, std::span<const Command> commands,
             const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (word == "help" || word == "--help" || word == "-h") {
    fmt::print("{}", help);
    return 0;
  }
  if (word == kCompleteFlag) return complete(commands, arguments);
  std::string names;
  for (const Command& command : commands) {
    if (word == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    const bool is_last = &command == &commands.back();
    names += fmt::format("{}{}", names.empty() ? "" : is_last ? " and " : ", ", command.name);
  }
  if (word.empty()) {
    fmt::print(stderr, "{}", help);
  } else {
    fmt::print(stderr, "{}: there is no command '{}', only {} ('{} --help')\n", program, word, names, program);
  }
  return kExitUsage;
}

}  // namespace qccl::tools

int main(int argc, char** argv) {
  using namespace qccl::tools;
  std::vector<std::string> words(argv, argv + argc);
  const std::string name = words.empty() ? "qccl" : words[0].substr(words[0].rfind('/') + 1);
  const std::string suffix = "_perf";
  if (name.ends_with(suffix)) {
    words[0] = name.substr(0, name.size() - suffix.size());
    return perf_main(words);
  }
  if (!words.empty()) words.erase(words.begin());
  if (!words.empty() && words[0] == "--version") words[0] = "version";
  return dispatch("qccl", kHelp, kCommands, words);
}
