#include <gtest/gtest.h>

#include "comm/inspect/status_server.h"

namespace qccl::comm {
namespace {

RankStatus busy() {
  RankStatus status;
  status.groups = {{"world", 17, ""}, {"odd\tname\n", 0, "rank 3 was lost"}};
  status.calls = {{"world", 17, "all_reduce(count=4, float32, sum)", 12.345, {1, 3}, 4, 16},
                  {"world", 1, "recv", 0, {}, 0, 8}};
  return status;
}

TEST(StatusText, is_read_back_as_it_was_written) {
  RankStatus back;
  ASSERT_TRUE(decode_status(encode_status(busy()), back).ok());
  ASSERT_EQ(back.groups.size(), 2u);
  EXPECT_EQ(back.groups[0].name, "world");
  EXPECT_EQ(back.groups[0].calls, 17u);
  EXPECT_EQ(back.groups[1].name, "odd name ");
  EXPECT_EQ(back.groups[1].failure, "rank 3 was lost");
  ASSERT_EQ(back.calls.size(), 2u);
  EXPECT_EQ(back.calls[0].number, 17u);
  EXPECT_EQ(back.calls[0].call, "all_reduce(count=4, float32, sum)");
  EXPECT_DOUBLE_EQ(back.calls[0].seconds, 12.345);
  EXPECT_EQ(back.calls[0].waits_for, (std::vector<int>{1, 3}));
  EXPECT_EQ(back.calls[0].received_bytes, 4u);
  EXPECT_EQ(back.calls[0].expected_bytes, 16u);
  EXPECT_TRUE(back.calls[1].waits_for.empty());
}

TEST(StatusText, cut_or_foreign_text_is_refused) {
  const std::string text = encode_status(busy());
  for (std::size_t size = 0; size + 4 < text.size(); ++size) {
    RankStatus back;
    EXPECT_FALSE(decode_status(text.substr(0, size), back).ok()) << size;
  }
  RankStatus back;
  EXPECT_FALSE(decode_status("call\tworld\tx\t0\t0\t0\t\tc\nend\n", back).ok());
  EXPECT_FALSE(decode_status("HTTP/1.1 400 Bad Request\n", back).ok());
}

TEST(StatusText, keeps_its_bound_and_is_still_complete) {
  RankStatus status;
  status.calls.resize(64);
  for (CallStatus& call : status.calls) {
    call.group = call.call = std::string(10'000, 'c');
    call.waits_for.assign(1023, 1023);
  }
  status.groups.resize(5000, {std::string(10'000, 'n'), 1, std::string(10'000, 'f')});
  const std::string text = encode_status(status);
  EXPECT_LE(text.size(), kMaxStatusBytes);
  RankStatus back;
  EXPECT_TRUE(decode_status(text, back).ok());
  EXPECT_GT(back.calls.size(), 30u);
}

TEST(StatusText, more_calls_than_a_rank_reports_are_refused) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += "call\tworld\t1\t0\t0\t0\t\tc\n";
  RankStatus back;
  EXPECT_FALSE(decode_status(text + "end\n", back).ok());
}

TEST(StatusText, a_sockets_name_tells_which_rank_it_is) {
  RankStatus self;
  self.process = 1234;
  self.rank = 5;
  self.world = 8;
  self.job = "3fa9";
  const auto back = parse_status_socket_name(status_socket_name(self));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->process, 1234);
  EXPECT_EQ(back->rank, 5);
  EXPECT_EQ(back->world, 8);
  EXPECT_EQ(back->job, "3fa9");
  EXPECT_FALSE(parse_status_socket_name("qccl/status/0/a/b/c/d"));
  EXPECT_FALSE(parse_status_socket_name("qccl/0/abc"));
}

}  // namespace
}  // namespace qccl::comm
