// `qccl top`: the view of `qccl ps --job`, again and again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <thread>

#include "tools/command_line.h"
#include "tools/ps/job_view.h"

namespace qccl::tools {
namespace {

constexpr const char* kTopFooter =
    R"(Shows what qccl ps --job shows, until Ctrl-C or until no rank is left on this host.

Exit code: 0; 1 if there are no ranks; 2 for wrong flags.

Examples:
  qccl top
  qccl top --every 0.5
)";
constexpr const char* kClear = "\x1b[H\x1b[J";  // the cursor to the top, and all below it blank

}  // namespace

int top_main(const std::vector<std::string>& arguments) {
  CommandLine app("Shows what the ranks of whole jobs are doing, live.", "qccl top", "[OPTIONS]", kTopFooter);
  double patience = 0.4;
  double every = 1;
  add_seconds(app, "--wait", patience, CLI::PositiveNumber, "Seconds to wait for answers")->capture_default_str();
  add_seconds(app, "--every", every, CLI::PositiveNumber, "Seconds between two looks")->capture_default_str();
  if (const auto code = app.read(arguments)) return *code;

  JobsSeen seen = look_at_jobs(to_milliseconds(patience), to_milliseconds(every));
  if (seen.jobs.empty()) {
    fmt::print(stderr, "qccl top: no process on this host has joined a job of QCCL's\n");
    return kExitFailed;
  }
  while (!seen.jobs.empty()) {
    fmt::print("{}{}", kClear, table_of(seen));
    std::fflush(stdout);
    std::this_thread::sleep_for(to_milliseconds(every));
    seen = look_again(std::move(seen), to_milliseconds(patience));
  }
  return 0;
}

}  // namespace qccl::tools
