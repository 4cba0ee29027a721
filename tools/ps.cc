// `qccl ps`: shows what the ranks on this host are doing, and which peers they wait for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <qccl/status.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kMaxCalls = 8;  // shown per rank

constexpr const char* kPsFooter =
    R"(Shows the ranks on this host of jobs that use QCCL, yours or all users' if you are root, however they were
started. For each rank: its calls that have not ended, their number in the group (in a job that hangs, the
rank that is behind has the lower number), their age, the ranks that they wait for (once a rank has been
silent for most of a second, that rank, even if others stand between), and the bytes received. A rank that
does not answer is stopped (T) or busy inside a call of the library.

Exit code: 0; 1 if there are no ranks; 2 for wrong flags.

Examples:
  qccl ps
  ssh node2 qccl ps
  watch qccl ps
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

}  // namespace

int ps_main(const std::vector<std::string>& arguments) {
  CommandLine app("Says what the ranks on this host are doing, and which ranks they wait for.", "qccl ps", "[OPTIONS]",
                  kPsFooter);
  double patience = 1;
  add_seconds(app, "--wait", patience, CLI::PositiveNumber, "Seconds to wait for answers")->capture_default_str();
  if (const auto code = app.read(arguments)) return *code;

  const std::vector<RankStatus> ranks = ranks_on_this_host(to_milliseconds(patience));
  const RankStatus* last = nullptr;
  for (const RankStatus& rank : ranks) {
    if (last == nullptr || rank.job != last->job || rank.user != last->user) print_job(rank, last == nullptr);
    last = &rank;
    print_rank(rank);
  }
  if (!ranks.empty()) return 0;
  fmt::print(stderr, "qccl ps: no process on this host has joined a job of QCCL's\n");
  return kExitFailed;
}

}  // namespace qccl::tools
