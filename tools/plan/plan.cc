#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <cstdio>

namespace qccl::tools {
namespace {

constexpr const char* kHelp = R"(Plans of collectives: checked, explained, priced and simulated.

Usage: qccl plan COMMAND [OPTIONS]

Commands:
  check      run every plan symbolically and say what is wrong with it, if anything
  show       what a call would become: algorithm, steps, bytes, predicted time
  simulate   run the engine for many ranks over a simulated network

'qccl plan COMMAND --help' has the flags and examples of a command.

Examples:
  qccl plan check
  qccl plan show all_reduce --world 8 --bytes 64M
  qccl plan simulate --world 512 --hosts 64 --rate 10gbit --latency 50us all_reduce -b 1K -e 256M
)";

}  // namespace

int plan_main(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "check") return plan_check_main(rest);
  if (command == "show") return plan_show_main(rest);
  if (command == "simulate") return plan_simulate_main(rest);
  if (command.empty()) {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fmt::print(stderr, "qccl plan: there is no command '{}'; there are check, show and simulate\n", command);
  }
  return kPlanUsage;
}

}  // namespace qccl::tools
