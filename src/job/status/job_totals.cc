#include "job/status/job_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>

#include "base/log.h"
#include "qccl/log_report.h"

namespace qccl::comm {
namespace {

constexpr std::uint64_t kTellingBytes = std::uint64_t{1} << 20;  // a line's rate means something from here on

struct OpenJobs {
  std::mutex mutex;
  std::map<int, std::weak_ptr<JobTotals>> by_rank;
};

OpenJobs& open_jobs() {
  static auto* const only = new OpenJobs;
  return *only;
}

// "; slowest line 0.94 Gbit/s, to rank 3"; empty if all ranks are near or little was sent.
std::string slowest_line(const RankStatus& totals) {
  const auto found = std::ranges::find_if(totals.lines, [](const LineStatus& line) {
    return line.acknowledged_bytes >= kTellingBytes && line.busy_seconds > 0;
  });
  if (found == totals.lines.end()) return {};
  return fmt::format("; slowest line {:.3g} Gbit/s, to rank {}", found->bytes_per_second() * 8e-9, found->peer);
}

std::string warnings_text(const RankStatus& totals) {
  if (totals.warnings.empty()) return "no warnings";
  const std::size_t more = totals.warnings.size() - 1;
  return fmt::format("warning: {}{}", totals.warnings.front(), more > 0 ? fmt::format(" (and {} more)", more) : "");
}

}  // namespace

std::string end_of_job_line(const RankStatus& totals) {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  for (const CallCounters& counters : totals.counters) {
    calls += counters.calls;
    bytes += counters.bytes;
  }
  const double share = totals.seconds > 0 ? std::min(1.0, totals.busy_seconds / totals.seconds) : 0;
  return fmt::format(
      "rank {} of {}: {} call{} of {}, sent {}, saved {} by compression; in calls {:.1f} % of {:.1f} s{}; {}",
      totals.rank, totals.world, calls, calls == 1 ? "" : "s", size_text(bytes), size_text(totals.sent_bytes),
      size_text(totals.saved_bytes), 100 * share, totals.seconds, slowest_line(totals), warnings_text(totals));
}

std::shared_ptr<JobTotals> JobTotals::of(int rank) {
  OpenJobs& open = open_jobs();
  const std::lock_guard lock(open.mutex);
  std::weak_ptr<JobTotals>& known = open.by_rank[rank];
  auto totals = known.lock();
  if (totals == nullptr) known = totals = std::make_shared<JobTotals>();
  return totals;
}

void JobTotals::add(const RankStatus& ended, bool is_first) {
  const std::lock_guard lock(mutex_);
  RankStatus sum = ended;  // the later job's rank, world and lines stand for all
  sum.counters.insert(sum.counters.end(), sum_.counters.begin(), sum_.counters.end());
  sum.warnings.insert(sum.warnings.begin(), sum_.warnings.begin(), sum_.warnings.end());
  sum.seconds = std::max(sum.seconds, sum_.seconds);
  sum.busy_seconds += sum_.busy_seconds;
  sum.sent_bytes += sum_.sent_bytes;
  sum.saved_bytes += sum_.saved_bytes;
  sum_ = std::move(sum);
  is_first_ = is_first;
}

JobTotals::~JobTotals() {
  const bool has_calls = std::ranges::any_of(sum_.counters, [](const auto& counters) { return counters.calls > 0; });
  if (!is_first_ || !has_calls || !announces()) return;
  try {
    write_line("qccl: info: " + end_of_job_line(sum_));
  } catch (const std::bad_alloc&) {  // without the line
  }
}

}  // namespace qccl::comm
