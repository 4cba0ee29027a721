// run_ranks(): runs the job and reports its results to GoogleTest.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "job.h"
#include "rank_process.h"

namespace qccl::testing {
namespace {

using Part = ::testing::TestPartResult;

void add_part(Part::Type type, const char* file, int line, const std::string& message) {
  GTEST_MESSAGE_AT_(file, line, message.c_str(), type);
}

// Adds a result at the test's own line, for messages about a whole rank or job.
void add_at_test(Part::Type type, const std::string& message) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) return add_part(type, nullptr, -1, message);
  add_part(type, test->file(), test->line(), message);
}

std::string name_of(Skip skip) {
  const auto found = std::ranges::find(skip_codes(), skip, &SkipCode::skip);
  return found == skip_codes().end() ? "unknown" : found->name;
}

std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "    | " + line + "\n";
  return result;
}

// How the ranks ended, grouped by end: "ranks 0, 2 exited with code 0; rank 1 exited with code 3".
std::string list_ends(const std::vector<JobRank>& all) {
  std::map<std::string, std::vector<std::size_t>> by_end;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    by_end[to_text(all[rank].report.end)].push_back(rank);
  }
  std::string text;
  for (const auto& [end, ranks] : by_end) {
    text += (text.empty() ? "rank" : "; rank") + std::string(ranks.size() > 1 ? "s " : " ");
    for (const std::size_t rank : ranks) text += (rank == ranks.front() ? "" : ", ") + std::to_string(rank);
    text += " " + end;
  }
  return text;
}

class Verdict {
 public:
  Verdict(const JobOptions& options, Job& job) : options_(options), job_(job), ranks_(job.ranks()) {}

  Report give() {
    Report report;
    if (!is_skipped()) {
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) judge_rank(rank);
      judge_together();
    }
    report.skipped = is_skipped();
    report.passed = !failed_ && !report.skipped;
    for (JobRank& own : ranks_) report.ranks.push_back(std::move(own.report));
    return report;
  }

 private:
  // Whether all ranks skipped, for the same reason.
  bool is_skipped() const {
    return std::ranges::all_of(ranks_, [this](const JobRank& own) {
      return own.skip && own.skip->first == ranks_[0].skip->first && own.parts.empty() &&
             own.report.end == exited(static_cast<int>(own.skip->first));
    });
  }

  void fail(const std::string& message) {
    failed_ = true;
    add_at_test(Part::kNonFatalFailure, message);
  }

  void judge_rank(std::size_t rank) {
    const JobRank& own = ranks_[rank];
    const std::string name = "rank " + std::to_string(rank);
    for (const FailedPart& part : own.parts) {
      failed_ = true;
      add_part(part.fatal ? Part::kFatalFailure : Part::kNonFatalFailure,
               part.file.empty() ? nullptr : part.file.c_str(), part.line, name + ": " + part.message);
    }
    const std::string trouble = trouble_of(rank);
    if (trouble.empty()) return;
    std::string message = name + " of " + std::to_string(options_.world) + " " + trouble + "\n" + own.evidence;
    for (const auto& [point, time] : own.report.points) {
      message += (point == own.report.points.begin()->first ? "  it had reached: '" : ", '") + point + "'";
    }
    if (!own.report.points.empty()) message += "\n";
    if (!own.report.output.empty()) message += "  its output:\n" + indented(own.report.output);
    fail(message);
  }

  // The problem with the way this rank ended; empty if there is none.
  std::string trouble_of(std::size_t rank) const {
    const JobRank& own = ranks_[rank];
    const End& end = own.report.end;
    const End expected = expected_end(options_, static_cast<int>(rank));
    if (own.left_running) return "did not end: " + job_.why_ended();
    if (!own.parts.empty()) return "failed and " + to_text(end);
    if (own.skip) {
      return "skipped (" + name_of(own.skip->first) + ": " + own.skip->second + "), but not all ranks did";
    }
    if (end != expected) {
      const std::string wanted = expected == exited(0) ? "" : "; expected: " + to_text(expected);
      return to_text(end) + (own.report.finished ? "" : " before its function returned") + wanted;
    }
    if (!own.began) return to_text(end) + " before it began: its process never reached run_ranks()";
    if (end == exited(0) && !own.report.finished) return to_text(end) + " before its function returned";
    return "";
  }

  void judge_together() {
    for (const std::string& missed : job_.missed_faults()) fail("a fault: " + missed);
    // Ranks whose end the test declares may differ.
    std::vector<End> ends;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const bool is_declared = expected_end(options_, static_cast<int>(rank)) != exited(0);
      if (!is_declared && !ranks_[rank].left_running) ends.push_back(ranks_[rank].report.end);
    }
    const bool differ = std::ranges::adjacent_find(ends, std::not_equal_to<>()) != ends.end();
    if (differ) fail("ranks did not end with the same code: " + list_ends(ranks_));
  }

  const JobOptions& options_;
  Job& job_;
  std::vector<JobRank>& ranks_;
  bool failed_ = false;
};

// Counts the running test's calls of run_ranks().
class CallCounter final : public ::testing::EmptyTestEventListener {
 public:
  static int next() {
    // Lives as long as GoogleTest, which owns it.
    static CallCounter* const counter = [] {
      auto* made = new CallCounter;
      ::testing::UnitTest::GetInstance()->listeners().Append(made);
      return made;
    }();
    return counter->calls_++;
  }

 private:
  void OnTestStart(const ::testing::TestInfo&) override { calls_ = 0; }

  int calls_ = 0;
};

void skip_test(const JobRank& own) { add_at_test(Part::kSkip, name_of(own.skip->first) + ": " + own.skip->second); }

// In a spawned rank, the report for a call that is not its own: success on all ranks.
Report presumed(const JobOptions& options) {
  Report report;
  report.passed = true;
  report.ranks.resize(static_cast<std::size_t>(options.world));
  return report;
}

}  // namespace

Report run_ranks(const JobOptions& options, const std::function<void(Rank&)>& body) {
  const int call = CallCounter::next();
  if (const auto own = spawned_rank()) {
    if (own->call != call) return presumed(options);
    Rank::Process(own->rank, options, Fd(own->channel)).run(body);
  }
  Job job(options, call, body);
  job.run();
  Report report = Verdict(options, job).give();
  if (report.skipped) skip_test(job.ranks().front());
  return report;
}

}  // namespace qccl::testing
