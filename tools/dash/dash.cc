// `qccl dash`: serves a page of a job, from the logs of its ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "dashboard/dashboard.h"
#include "tools/command_line.h"
#include "tools/dash/log_follower.h"

namespace qccl::tools {
namespace {

constexpr const char* kFooter = R"(
Serves one page for a browser: when each rank communicated, which rank comes last, bytes and compression by operation,
lines, what compressing each parameter costs, and events. The page follows the logs while they grow. LOG is a log of a
rank, a merged one, or the PREFIX of QCCL_LOG_FILE, whose files may come later. The server ends with Ctrl-C.

Other hosts reach the page only if --listen names an address that they reach. It then asks for a token, which the
printed address has. The page is not encrypted: on networks that others use, forward a port instead (ssh -L).

Examples:
  QCCL_LOG_FILE=log_ qccl run -n 4 -- python train.py &
  qccl dash log_
  qccl dash --listen 127.0.0.1:0 log_?.json
  ssh -L 8265:127.0.0.1:8265 node1 qccl dash /tmp/log_

Exit code: 0 after Ctrl-C or SIGTERM; 1 if the page can't be served; 2 for wrong flags.
)";

constexpr auto kPause = std::chrono::milliseconds(250);  // between two looks at the files

// Blocks the signals that end the program, so that wait() gets them. Made before other threads begin.
class EndSignals {
 public:
  EndSignals() {
    ::sigemptyset(&signals_);
    ::sigaddset(&signals_, SIGINT);
    ::sigaddset(&signals_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Whether one of them came within that time.
  bool wait(std::chrono::milliseconds time) const {
    const timespec patience{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return ::sigtimedwait(&signals_, nullptr, &patience) > 0;
  }

 private:
  sigset_t signals_{};
};

}  // namespace

int dash_main(const std::vector<std::string>& arguments) {
  CommandLine app("Serves a page of a job, from the logs of its ranks.", "qccl dash", "[OPTIONS] LOG...", kFooter);
  std::string address = "127.0.0.1:8265";
  std::vector<std::string> names;
  app.add_option("LOG", names, "Logs of ranks of one job, or their common prefix")->required();
  app.add_option("--listen", address, "Where to serve the page; port 0: a free one")
      ->capture_default_str()
      ->option_text("HOST:PORT");
  if (const auto code = app.read(arguments)) return *code;
  const auto options = dashboard::parse_address(address);
  if (!options) {
    fmt::print(stderr, "qccl dash: --listen: {}\n", options.error().message);
    return kExitUsage;
  }
  const EndSignals signals;
  dashboard::JobView view;
  view.set_source(fmt::format("{}", fmt::join(names, " ")));
  const auto page = dashboard::Dashboard::open(options.value(), view);
  if (!page) {
    fmt::print(stderr, "qccl dash: {}\n", page.error().message);
    return kExitFailed;
  }
  fmt::print("{}\n", page.value()->url());
  std::fflush(stdout);
  LogFollower follower(names, view);
  do follower.poll();
  while (!signals.wait(kPause));
  return 0;
}

}  // namespace qccl::tools
