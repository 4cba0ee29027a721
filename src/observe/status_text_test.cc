// The state of a rank as text: read back as it was written, whatever a stranger sends instead.
#include "observe/status_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace qccl::internal {
namespace {

RankStatus busy() {
  RankStatus status;
  status.rank = 7;
  status.world = 64;
  status.job = "07b93b6b";
  status.state = 'S';
  status.answered = true;
  status.host = "node\"1";
  status.groups = {{"world", "1f", 17, ""}, {"odd\tname\n", "2", 0, "rank 3 was lost"}};
  status.calls = {{.group = "world",
                   .group_id = "1f",
                   .number = UINT64_MAX,
                   .is_message = true,
                   .operation = "all_reduce",
                   .call = "all_reduce(count=4, float32, sum)",
                   .bytes = 16,
                   .seconds = 12.345,
                   .waits_for = {1, 3},
                   .received_bytes = 4,
                   .expected_bytes = 16},
                  {.group = "world", .waits_for = {}}};
  status.last = {"world", 16, "barrier", 8.5};
  status.counters = {{"world", 64, "all_reduce", 16, 1, 1024, 100, 400, 0.25}};
  status.lines = {{3, 1 << 20, 12, 0.5, 0.05}};
  status.warnings = {"group 'x' failed"};
  status.seconds = 100;
  status.saved_bytes = 300;
  return status;
}

std::string text_of(const RankStatus& status) { return to_json(status); }

TEST(StatusText, is_read_back_as_it_was_written) {
  RankStatus back;
  ASSERT_TRUE(decode_status(encode_status(busy()), back).ok());
  RankStatus expected = busy();
  expected.groups[1].name = "odd name ";  // what could move a cursor is blank
  EXPECT_EQ(text_of(back), text_of(expected));
  EXPECT_EQ(back.calls[0].number, UINT64_MAX);
  EXPECT_EQ(back.calls[0].waits_for, (std::vector<int>{1, 3}));
  EXPECT_EQ(back.last.operation, "barrier");
}

TEST(StatusText, text_that_is_cut_or_has_other_types_is_refused) {
  const std::string text = encode_status(busy());
  for (std::size_t size = 0; size < text.size(); ++size) {
    RankStatus back;
    ASSERT_FALSE(decode_status(std::string_view(text).substr(0, size), back).ok()) << size;
  }
  for (const char* const bad :
       {"[]", "7", "HTTP/1.1 400 Bad Request", R"({"rank": "7"})", R"({"rank": 1e99})", R"({"rank": 4294967296})",
        R"({"rank": 18446744073709551615})", R"({"sent_bytes": -1})", R"({"state": "SS"})", R"({"answered": 1})",
        R"({"groups": {}})", R"({"groups": [7]})", R"({"calls": [{"waits_for": [1.5]}]})", R"({"last": []})",
        R"({"warnings": [1]})", R"({"calls": [{"waits_for": [4294967296]}]})"}) {
    RankStatus back;
    EXPECT_FALSE(decode_status(bad, back).ok()) << bad;
  }
}

TEST(StatusText, a_deep_nest_is_refused_without_harm) {
  RankStatus back;
  EXPECT_FALSE(decode_status(std::string(kMostStatusBytes, '['), back).ok());
  const std::string closed = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_TRUE(decode_status("{\"unknown\": " + closed + "}", back).ok());
}

TEST(StatusText, keeps_its_bound_and_is_still_complete) {
  RankStatus status = busy();
  status.calls.resize(64, status.calls[0]);
  for (CallStatus& call : status.calls) call.waits_for.assign(1023, 1023);
  status.groups.resize(5000, {std::string(1000, 'n'), "3", 1, std::string(1000, 'f')});
  for (const std::size_t limit : {kMostStatusBytes, kMostPeerStatusBytes, std::size_t{1000}}) {
    const std::string text = encode_status(status, limit);
    EXPECT_LE(text.size(), limit);
    RankStatus back;
    EXPECT_TRUE(decode_status(text, back).ok());
    EXPECT_EQ(back.rank, 7);
  }
}

TEST(StatusText, ranks_of_a_job_come_in_a_list) {
  const auto back = decode_statuses(encode_statuses({busy(), RankStatus()})).take_or_throw();
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].rank, 7);
  EXPECT_FALSE(decode_statuses("{}").ok());
  EXPECT_FALSE(decode_statuses("[{}, 1]").ok());
}

TEST(StatusText, of_jobs_says_who_holds_them_up) {
  const JobStatus job{.job = "a", .user = 1, .ranks = {busy()}};
  const auto json = nlohmann::json::parse(to_json({&job, 1}));
  EXPECT_EQ(json.at(0).at("job"), "a");
  EXPECT_EQ(json.at(0).at("ranks").at(0).at("calls").at(0).at("operation"), "all_reduce");
  EXPECT_EQ(json.at(0).at("hold_up").at("seconds"), 12.345);
}

}  // namespace
}  // namespace qccl::internal
