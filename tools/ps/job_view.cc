#include "tools/ps/job_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kNamedRanks = 4;  // in a cell
constexpr std::size_t kColumns = 9;
using Cells = std::array<std::string, kColumns>;

std::vector<JobStatus> jobs_now(std::chrono::milliseconds patience) {
  return whole_jobs(ranks_on_this_host(patience), patience);
}

// The same rank in an earlier look; null if it was not there or did not answer.
const RankStatus* find_rank(const std::vector<JobStatus>& jobs, const JobStatus& job, int rank) {
  for (const JobStatus& other : jobs) {
    if (other.job != job.job || other.user != job.user) continue;
    const auto found = std::ranges::find(other.ranks, rank, &RankStatus::rank);
    return found != other.ranks.end() && found->answered ? &*found : nullptr;
  }
  return nullptr;
}

std::string ranks_cell(const std::vector<int>& ranks) {
  if (ranks.size() > kNamedRanks) return fmt::format("{} ranks", ranks.size());
  return fmt::format("{}", fmt::join(ranks, ","));
}

// "1.3 GB/s"
std::string rate_cell(const RankStatus& rank, const RankStatus* before) {
  const double seconds = before == nullptr ? 0 : rank.seconds - before->seconds;
  if (seconds <= 0) return "-";
  const std::uint64_t sent = rank.sent_bytes - std::min(rank.sent_bytes, before->sent_bytes);
  return qccl::size_text(static_cast<std::uint64_t>(static_cast<double>(sent) / seconds)) + "/s";
}

Cells cells_of(const RankStatus& rank, const RankStatus* before) {
  Cells cells{std::to_string(rank.rank), rank.host, "", "", "", "", "", "", ""};
  if (!rank.answered) {
    cells[2] = (rank.state == 'T' ? "stopped; " : "") + (rank.absence.empty() ? "does not answer" : rank.absence);
    return cells;
  }
  cells[6] = rate_cell(rank, before);
  cells[7] = std::to_string(rank.resent_packets);
  cells[8] = qccl::size_text(rank.saved_bytes);
  if (!rank.calls.empty()) {
    const CallStatus& call = rank.calls.front();
    const std::string more = rank.calls.size() > 1 ? fmt::format(" +{}", rank.calls.size() - 1) : "";
    cells[2] = fmt::format("{} #{} of '{}'{}", call.operation, call.number, call.group, more);
    cells[3] = qccl::size_text(call.bytes);
    cells[4] = fmt::format("{:.1f} s", call.seconds);
    cells[5] = ranks_cell(call.waits_for);
  } else if (!rank.last.operation.empty()) {
    cells[2] = fmt::format("no call since {} #{} of '{}'", rank.last.operation, rank.last.number, rank.last.group);
    cells[4] = fmt::format("{:.1f} s", rank.last.seconds);
  } else {
    cells[2] = "no call yet";
  }
  return cells;
}

std::string lines_of_table(const std::vector<Cells>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Cells& row : rows) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < kColumns; ++column) {
      const bool is_text = column == 1 || column == 2 || column == 5;
      line += is_text ? fmt::format("  {:<{}}", row[column], widths[column])
                      : fmt::format("  {:>{}}", row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string headline_of(const JobStatus& job) {
  const HoldUp hold_up = find_hold_up(job.ranks);
  if (!hold_up.text.empty()) return hold_up.text;
  const bool any_answered = std::ranges::any_of(job.ranks, &RankStatus::answered);
  return any_answered ? "no rank has waited for longer than 0.25 s" : "no rank on this host answers";
}

std::string text_of_job(const JobStatus& job, const std::vector<JobStatus>& before) {
  std::set<std::string> hosts;
  std::set<std::string> warnings;
  std::vector<Cells> rows{{"rank", "host", "call", "bytes", "for", "waits for", "sent", "resent", "saved"}};
  for (const RankStatus& rank : job.ranks) {
    if (!rank.host.empty()) hosts.insert(rank.host);
    for (const std::string& warning : rank.warnings) warnings.insert(fmt::format("rank {}: {}", rank.rank, warning));
    rows.push_back(cells_of(rank, find_rank(before, job, rank.rank)));
  }
  const int world = job.ranks.empty() ? 0 : job.ranks.front().world;
  std::string text = fmt::format("job {}, {} rank{} on {} host{}\n{}\n\n", job.job, world, world == 1 ? "" : "s",
                                 hosts.size(), hosts.size() == 1 ? "" : "s", headline_of(job));
  text += lines_of_table(rows);
  for (const std::string& warning : warnings) text += fmt::format("warning: {}\n", warning);
  return text;
}

}  // namespace

JobsSeen look_at_jobs(std::chrono::milliseconds patience, std::chrono::milliseconds interval) {
  JobsSeen seen{.jobs = jobs_now(patience), .before = {}};
  if (seen.jobs.empty()) return seen;
  std::this_thread::sleep_for(interval);
  return look_again(std::move(seen), patience);
}

JobsSeen look_again(JobsSeen seen, std::chrono::milliseconds patience) {
  return {.jobs = jobs_now(patience), .before = std::move(seen.jobs)};
}

std::string table_of(const JobsSeen& seen) {
  std::string text;
  for (const JobStatus& job : seen.jobs) text += (text.empty() ? "" : "\n") + text_of_job(job, seen.before);
  return text;
}

}  // namespace qccl::tools
