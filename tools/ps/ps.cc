// `qccl ps`: shows what the ranks on this host, or of whole jobs, are doing, and which peers they wait for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <qccl/status.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/command_line.h"
#include "tools/ps/job_view.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kMaxCalls = 8;  // shown per rank

constexpr const char* kPsFooter =
    R"(Shows the ranks on this host of jobs that use QCCL, yours or all users' if you are root, however they were
started. For each rank: its calls that have not ended, their number in the group (in a job that hangs, the
rank that is behind has the lower number), their age, the ranks that they wait for (once a rank has been
silent for most of a second, that rank, even if others stand between), and the bytes received. A rank that
does not answer is stopped (T) or busy inside a call of the library.

With --job, a rank on this host asks all ranks of its job, on all hosts, over the connections that they have.
The first line names the rank that holds the others up. For each rank: its oldest call (and how many more), that
call's input, its age and the ranks that it waits for; what the rank sends a second, the TCP packets that were
sent again, and the bytes that compression saved.

Exit code: 0; 1 if there are no ranks, or no stack to show; 2 for wrong flags.

Examples:
  qccl ps
  qccl ps --job
  qccl ps --stacks
  ssh node2 qccl ps --job --json
)";

const char* state_word(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S':
    case 'I': return "sleeping";
    case 'D': return "in kernel";
    case 'T':
    case 't': return "stopped";
    case 'Z':
    case 'X': return "ended";
    default: return "unknown";
  }
}

std::string describe(const CallStatus& call) {
  std::string text = fmt::format("{} number {} of '{}' for {:.1f} s", call.call, call.number, call.group, call.seconds);
  if (!call.waits_for.empty()) {
    text +=
        fmt::format(", waits for rank{} {}", call.waits_for.size() == 1 ? "" : "s", fmt::join(call.waits_for, ", "));
  }
  return text + fmt::format(", got {} of {} bytes", call.received_bytes, call.expected_bytes);
}

// The lines that describe a rank.
std::vector<std::string> lines_of(const RankStatus& rank) {
  if (!rank.answered) return {"does not answer"};
  std::vector<std::string> lines;
  for (const CallStatus& call : rank.calls) {
    if (lines.size() < kMaxCalls) lines.push_back(describe(call));
  }
  if (rank.calls.size() > kMaxCalls) lines.push_back(fmt::format("and {} more", rank.calls.size() - kMaxCalls));
  for (const GroupStatus& group : rank.groups) {
    if (!group.failure.empty()) lines.push_back(fmt::format("'{}' failed: {}", group.name, group.failure));
  }
  if (!lines.empty()) return lines;
  std::vector<std::string> done;
  for (const GroupStatus& group : rank.groups) done.push_back(fmt::format("{} of '{}'", group.calls, group.name));
  return {fmt::format("in no call; made {}", fmt::join(done, ", "))};
}

void print_job(const RankStatus& rank, bool is_first) {
  const std::string whose = rank.user == ::geteuid() ? "" : fmt::format(" of user {}", rank.user);
  fmt::print("{}job {}{}, {} rank{}\n", is_first ? "" : "\n", rank.job, whose, rank.world, rank.world == 1 ? "" : "s");
  fmt::print(" rank  process  state      calls\n");
}

void print_rank(const RankStatus& rank) {
  std::string start = fmt::format("{:>5} {:>8}  {:<9}", rank.rank, rank.process, state_word(rank.state));
  for (const std::string& line : lines_of(rank)) {
    fmt::print("{}  {}\n", start, line);
    start.assign(start.size(), ' ');
  }
}

struct View {
  bool whole_jobs = false;
  bool as_json = false;
  bool stacks = false;
  double patience = 0.5;
};

int no_ranks() {
  fmt::print(stderr, "qccl ps: no process on this host has joined a job of QCCL's\n");
  return kExitFailed;
}

int show_this_host(const View& view) {
  const std::vector<RankStatus> ranks = ranks_on_this_host(to_milliseconds(view.patience));
  if (ranks.empty()) return no_ranks();
  if (view.as_json) {
    std::vector<JobStatus> jobs;
    for (const RankStatus& rank : ranks) {
      const bool is_new = jobs.empty() || jobs.back().job != rank.job || jobs.back().user != rank.user;
      if (is_new) jobs.push_back({rank.job, rank.user, {}});
      jobs.back().ranks.push_back(rank);
    }
    fmt::print("{}\n", to_json(jobs));
    return 0;
  }
  const RankStatus* last = nullptr;
  for (const RankStatus& rank : ranks) {
    if (last == nullptr || rank.job != last->job || rank.user != last->user) print_job(rank, last == nullptr);
    last = &rank;
    print_rank(rank);
  }
  return 0;
}

int show_whole_jobs(const View& view) {
  constexpr std::chrono::milliseconds kInterval(200);
  const JobsSeen seen = look_at_jobs(to_milliseconds(view.patience), kInterval);
  if (seen.jobs.empty()) return no_ranks();
  fmt::print("{}", view.as_json ? to_json(seen.jobs) + "\n" : table_of(seen));
  std::fflush(stdout);
  return !view.stacks || print_stacks(seen.jobs) ? 0 : kExitFailed;
}

}  // namespace

int ps_main(const std::vector<std::string>& arguments) {
  CommandLine app("Says what ranks are doing, and which ranks they wait for.", "qccl ps", "[OPTIONS]", kPsFooter);
  View view;
  app.add_flag("--job", view.whole_jobs, "All ranks of the jobs that have ranks on this host");
  app.add_flag("--json", view.as_json, "Everything that is known, as JSON");
  app.add_flag("--stacks", view.stacks, "The Python stack of the rank that holds others up, by py-spy; implies --job");
  add_seconds(app, "--wait", view.patience, CLI::PositiveNumber, "Seconds to wait for answers")->capture_default_str();
  if (const auto code = app.read(arguments)) return *code;
  return view.whole_jobs || view.stacks ? show_whole_jobs(view) : show_this_host(view);
}

}  // namespace qccl::tools
