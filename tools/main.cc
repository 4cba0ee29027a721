// The `qccl` program: picks the command. Under one of nccl-tests' names, such as all_reduce_perf,
// it is `qccl perf all_reduce`.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <string>
#include <vector>

#include "tools/codec/codec.h"
#include "tools/command_line.h"
#include "tools/doctor/doctor.h"
#include "tools/log/log.h"
#include "tools/perf/perf.h"
#include "tools/plan/plan.h"
#include "tools/ps.h"
#include "tools/run/run.h"

namespace {

using qccl::tools::codec_main;
using qccl::tools::doctor_main;
using qccl::tools::log_main;
using qccl::tools::perf_main;
using qccl::tools::plan_main;
using qccl::tools::ps_main;
using qccl::tools::run_main;
using qccl::tools::trace_main;

constexpr const char* kHelp = R"(QCCL, the compressed collective communication library.

Usage: qccl COMMAND [OPTIONS]

Commands:
  run       start a program as the ranks of one job on this host
  ps        say what the ranks on this host are doing, and which ranks they wait for
  perf      time a collective and check its results, with nccl-tests' flags and columns
  doctor    say what is here, what would be done, what is wrong and how to fix it
  plan      check, show, price and simulate the plans of collectives
  codec     list, explain and measure the codecs
  log       sum up, draw and export what ranks have logged
  trace     merge ranks' logs into one trace
  version   print the version

'qccl COMMAND --help' has the flags and examples of a command.

Examples:
  qccl run -n 4 -- python train.py
  qccl doctor
  qccl perf all_reduce -b 4 -e 64M -f 2 -g 4
  qccl perf all_reduce -b 64M -e 64M -g 4 --compression minmax:bits=4 --link-rate 1gbit
)";

int dispatch(const std::string& command, const std::vector<std::string>& arguments) {
  if (command == "run") return run_main(arguments);
  if (command == "ps") return ps_main(arguments);
  if (command == "perf") return perf_main(arguments);
  if (command == "doctor") return doctor_main(arguments);
  if (command == "plan") return plan_main(arguments);
  if (command == "codec") return codec_main(arguments);
  if (command == "log") return log_main(arguments);
  if (command == "trace") return trace_main(arguments);
  if (command == "version" || command == "--version") {
    fmt::print("qccl {}\n", qccl::version());
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  fmt::print(stderr,
             "qccl: there is no command '{}'; there are run, ps, perf, plan, codec, log, trace, doctor and version "
             "('qccl --help')\n",
             command);
  return qccl::tools::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  std::string name = words.empty() ? "qccl" : words[0].substr(words[0].rfind('/') + 1);
  const std::string suffix = "_perf";
  if (name.ends_with(suffix)) {
    words[0] = name.substr(0, name.size() - suffix.size());
    return dispatch("perf", words);
  }
  if (words.size() < 2) {
    fmt::print(stderr, "{}", kHelp);
    return qccl::tools::kExitUsage;
  }
  return dispatch(words[1], {words.begin() + 2, words.end()});
}
