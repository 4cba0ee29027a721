// Counters in Prometheus' text format. tests/process/test_see_a_job.py reads a whole file with Prometheus' own parser.
#include <gtest/gtest.h>

#include "qccl/status.h"

namespace qccl {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

RankStatus rank_of_two() {
  RankStatus rank;
  rank.answered = true;
  rank.rank = 1;
  rank.world = 2;
  rank.process = 77;
  rank.job = "ab";
  rank.host = "node";
  return rank;
}

TEST(MetricsText, has_nccls_labels_and_names_of_collectives) {
  RankStatus rank = rank_of_two();
  rank.counters = {{.group = "world", .group_size = 2, .operation = "reduce_scatter", .calls = 3, .seconds = 0.5}};
  const std::string text = to_prometheus({&rank, 1});
  const std::string labels =
      R"({job_id="ab",hostname="node",pid="77",rank="1",comm_name="world",nranks="2",collective="ReduceScatter"})";
  EXPECT_TRUE(has_line(text, "qccl_calls_total" + labels + " 3")) << text;
  EXPECT_TRUE(has_line(text, "qccl_call_seconds_total" + labels + " 0.5")) << text;
  EXPECT_TRUE(has_line(text, "# TYPE qccl_calls_total counter")) << text;
  EXPECT_TRUE(has_line(text, "# HELP qccl_calls_total Calls that have ended well.")) << text;
}

TEST(MetricsText, escapes_what_would_end_a_label) {
  RankStatus rank = rank_of_two();
  rank.counters = {{.group = "a\"b\\c\nd", .operation = "send", .calls = 1}};
  EXPECT_NE(to_prometheus({&rank, 1}).find(R"(comm_name="a\"b\\c\nd")"), std::string::npos);
}

TEST(MetricsText, a_large_counter_keeps_its_digits_and_a_rank_that_did_not_answer_has_none) {
  std::vector<RankStatus> ranks{rank_of_two(), rank_of_two()};
  ranks[0].sent_bytes = 12345678901234567;
  ranks[1].answered = false;
  ranks[1].rank = 5;
  const std::string text = to_prometheus(ranks);
  EXPECT_NE(text.find(" 12345678901234567\n"), std::string::npos);
  EXPECT_EQ(text.find("rank=\"5\""), std::string::npos);
}

}  // namespace
}  // namespace qccl
