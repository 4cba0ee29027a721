// run_ranks(): runs the job and reports its results to GoogleTest.
#include <gtest/gtest.h>

#include <algorithm>
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
  for (const SkipCode& code : skip_codes()) {
    if (code.skip == skip) return code.name;
  }
  return "unknown";
}

std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "    | " + line + "\n";
  return result;
}

// How the ranks ended, grouped by end: "ranks 0, 2 exited with code 0; rank 1 exited with code 3".
std::string list_ends(const std::vector<RankResult>& outcomes) {
  std::map<std::string, std::vector<std::size_t>> by_end;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    by_end[to_text(outcomes[rank].report.end)].push_back(rank);
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
  Verdict(const JobOptions& options, Job& job) : options_(options), job_(job), outcomes_(job.outcomes()) {}

  Report give() {
    Report report;
    if (!is_skipped()) {
      for (std::size_t rank = 0; rank < outcomes_.size(); ++rank) judge_rank(rank);
      judge_together();
    }
    report.skipped = is_skipped();
    report.passed = !failed_ && !report.skipped;
    for (RankResult& outcome : outcomes_) report.ranks.push_back(std::move(outcome.report));
    return report;
  }

 private:
  // Whether all ranks skipped, for the same reason.
  bool is_skipped() const {
    return std::all_of(outcomes_.begin(), outcomes_.end(), [this](const RankResult& outcome) {
      return outcome.skip && outcome.skip->first == outcomes_[0].skip->first && outcome.parts.empty() &&
             outcome.report.end == exited(static_cast<int>(outcome.skip->first));
    });
  }

  void fail(const std::string& message) {
    failed_ = true;
    add_at_test(Part::kNonFatalFailure, message);
  }

  void judge_rank(std::size_t rank) {
    const RankResult& outcome = outcomes_[rank];
    const std::string name = "rank " + std::to_string(rank);
    for (const FailedPart& part : outcome.parts) {
      failed_ = true;
      add_part(part.fatal ? Part::kFatalFailure : Part::kNonFatalFailure,
               part.file.empty() ? nullptr : part.file.c_str(), part.line, name + ": " + part.message);
    }
    const std::string trouble = trouble_of(rank);
    if (trouble.empty()) return;
    std::string message = name + " of " + std::to_string(options_.world) + " " + trouble + "\n" + outcome.evidence;
    if (!outcome.report.points.empty()) message += "  it had come to:" + points_of(outcome) + "\n";
    if (!outcome.report.output.empty()) message += "  its output:\n" + indented(outcome.report.output);
    fail(message);
  }

  static std::string points_of(const RankResult& outcome) {
    std::string text;
    for (const auto& [name, time] : outcome.report.points) text += " '" + name + "'";
    return text;
  }

  // The problem with the way this rank ended; empty if there is none.
  std::string trouble_of(std::size_t rank) const {
    const RankResult& outcome = outcomes_[rank];
    const End& end = outcome.report.end;
    const End expected = expected_end(options_, static_cast<int>(rank));
    if (outcome.left_running) return "did not end: " + job_.why_ended();
    if (!outcome.parts.empty()) return "failed and " + to_text(end);
    if (outcome.skip) {
      return "skipped (" + name_of(outcome.skip->first) + ": " + outcome.skip->second + "), but not all ranks did";
    }
    if (end != expected) {
      const std::string wanted = expected == exited(0) ? "" : "; expected: " + to_text(expected);
      return to_text(end) + (outcome.report.finished ? "" : " before its function returned") + wanted;
    }
    if (!outcome.began) return to_text(end) + " before it began: its process never came to run_ranks()";
    if (end == exited(0) && !outcome.report.finished) return to_text(end) + " before its function returned";
    return "";
  }

  void judge_together() {
    for (const std::string& missed : job_.missed_faults()) fail("a fault: " + missed);
    // Ranks whose end the test declares may differ.
    const RankResult* first = nullptr;
    bool differ = false;
    for (std::size_t rank = 0; rank < outcomes_.size(); ++rank) {
      const bool is_foretold = expected_end(options_, static_cast<int>(rank)) != exited(0);
      if (is_foretold || outcomes_[rank].left_running) continue;
      if (first == nullptr) first = &outcomes_[rank];
      differ = differ || outcomes_[rank].report.end != first->report.end;
    }
    if (differ) fail("ranks did not end with the same code: " + list_ends(outcomes_));
  }

  const JobOptions& options_;
  Job& job_;
  std::vector<RankResult>& outcomes_;
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

void skip_test(const RankResult& outcome) {
  add_at_test(Part::kSkip, name_of(outcome.skip->first) + ": " + outcome.skip->second);
}

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
  if (report.skipped) skip_test(job.outcomes().front());
  return report;
}

}  // namespace qccl::testing
