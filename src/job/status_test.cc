// Queries of the ranks of this host, sockets with a rank's name that are no rank's, and the text of an answer.
#include "qccl/status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "job/status_server.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "os/test_user.h"

namespace qccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const SteadyClock kClock;

// A job that no other process has.
std::string make_job() { return std::to_string(os::random_nonce()); }

RankStatus rank_of(const std::string& job) {
  RankStatus rank;
  rank.process = os::process_id();
  rank.job = job;
  return rank;
}

std::vector<RankStatus> ranks_of(const std::string& job, Milliseconds patience = seconds(20)) {
  std::vector<RankStatus> ranks = ranks_on_this_host(patience);
  std::erase_if(ranks, [&](const RankStatus& rank) { return rank.job != job; });
  return ranks;
}

// Waits for 30 s at most; false if the condition has not become true.
template <class Condition>
bool wait_for(const Condition& condition) {
  const TimePoint limit = kClock.now() + seconds(30);
  while (!condition() && kClock.now() < limit) std::this_thread::yield();
  return condition();
}

class Status : public ::testing::Test {
 protected:
  // The only rank of the test's job.
  RankStatus only_rank(Milliseconds patience = seconds(20)) const {
    std::vector<RankStatus> ranks = ranks_of(job_, patience);
    EXPECT_EQ(ranks.size(), 1u);
    return ranks.empty() ? RankStatus() : ranks[0];
  }

  const std::string job_ = make_job();
  const std::string name_ = comm::status_socket_name(rank_of(job_));
};

TEST_F(Status, a_rank_reports_its_calls_and_its_user) {
  const comm::StatusServer server(rank_of(job_), [](RankStatus& status) { status.groups = {{"world", 3, ""}}; });
  const RankStatus rank = only_rank();
  ASSERT_TRUE(rank.answered);
  EXPECT_EQ(rank.groups[0].calls, 3u);
  EXPECT_EQ(rank.process, os::process_id());
  EXPECT_EQ(rank.user, os::own_credentials().user);
}

// Leaves the process `left` descriptors to open, as long as it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(int left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = 512;
    ::setrlimit(RLIMIT_NOFILE, &low);
    for (int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0; fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
      taken_.emplace_back(fd);
    }
    taken_.resize(taken_.size() - static_cast<std::size_t>(left));
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<os::Fd> taken_;
};

// The scheduler decides in which round the server runs out of descriptors; it must survive that in every round.
TEST_F(Status, a_rank_answers_once_there_are_descriptors_again) {
  const comm::StatusServer server(rank_of(job_), [](RankStatus& status) { status.groups = {{"world", 3, ""}}; });
  for (int round = 0; round < 20; ++round) {
    os::Fd connection;
    {
      const FewDescriptors one(1);
      connection = os::connect_unix_abstract(name_).take_or_throw();
      std::this_thread::yield();
    }
    const RankStatus rank = only_rank();
    ASSERT_TRUE(rank.answered) << "round " << round;
    EXPECT_EQ(rank.groups.at(0).calls, 3u);
  }
}

// Has the name of a rank of this user and answers as the test says.
class Impostor {
 public:
  Impostor(const std::string& name, std::function<void(const os::Fd&)> answer)
      : listener_(os::listen_unix_abstract(name).take_or_throw()), thread_([this, answer = std::move(answer)] {
          os::wait_ready(listener_, os::Direction::read, kForever, kClock).take_or_throw();
          auto query = os::accept_connection(listener_);
          if (query && *query) answer(**query);
        }) {}
  ~Impostor() {
    os::stop_listening(listener_);
    thread_.join();
  }

 private:
  os::Fd listener_;
  std::thread thread_;
};

// Blocks until all is written; false if the peer has closed.
bool say(const os::Fd& connection, const std::string& text) {
  return os::write_exactly(connection, std::as_bytes(std::span(text)), kClock.now() + seconds(30), kClock).ok();
}

TEST_F(Status, an_endless_answer_is_cut_off_after_256_KiB_and_is_none) {
  std::size_t written = 0;
  {
    const Impostor endless(name_, [&](const os::Fd& connection) {
      const std::string line = "group\tworld\t1\t\n";
      while (written < (std::size_t{64} << 20) && say(connection, line)) written += line.size();
    });
    EXPECT_FALSE(only_rank().answered);
  }
  EXPECT_LT(written, std::size_t{8} << 20) << "sockets buffer more than the limit";
}

TEST_F(Status, a_silent_socket_costs_the_patience_and_hides_no_rank) {
  const std::string silent_job = make_job();
  const Impostor silent(comm::status_socket_name(rank_of(silent_job)), [](const os::Fd& connection) {
    os::wait_ready(connection, os::Direction::read, kClock.now() + seconds(30), kClock).take_or_throw();
  });
  const comm::StatusServer server(rank_of(job_), [](RankStatus&) {});
  const auto ranks = ranks_on_this_host(milliseconds(300));
  for (const std::string& job : {job_, silent_job}) {
    const auto rank = std::ranges::find(ranks, job, &RankStatus::job);
    ASSERT_NE(rank, ranks.end());
    EXPECT_EQ(rank->answered, job == job_);
  }
}

TEST_F(Status, a_trickle_ends_with_the_patience) {
  const Impostor slow(name_, [](const os::Fd& connection) {
    while (say(connection, "group\tworld\t1\t\n")) std::this_thread::yield();
  });
  const TimePoint begin = kClock.now();
  EXPECT_FALSE(only_rank(milliseconds(200)).answered);
  EXPECT_LT(kClock.now() - begin, seconds(10));
}

TEST_F(Status, text_is_printable) {
  const Impostor rude(name_, [](const os::Fd& connection) {
    say(connection, "group\t\x1B]0;name\a\t1\t\x1B[2Jfailure\ncall\t\x9B\t1\t0\t0\t0\t\t\x1B[31mred\nend\n");
  });
  const RankStatus rank = only_rank();
  ASSERT_TRUE(rank.answered);
  EXPECT_EQ(rank.groups[0].name, " ]0;name ");
  EXPECT_EQ(rank.groups[0].failure, " [2Jfailure");
  EXPECT_EQ(rank.calls[0].group, "?");
  EXPECT_EQ(rank.calls[0].call, " [31mred");
  EXPECT_EQ(comm::parse_status_socket_name("qccl/status/0/\x1B[5m/1/0/7")->job, " [5m");
}

TEST_F(Status, a_rank_with_a_full_queue_of_queries_is_still_listed) {
  const auto listener = os::listen_unix_abstract(name_).take_or_throw();
  while (os::connect_unix_abstract(name_).ok()) {
  }
  EXPECT_FALSE(only_rank(milliseconds(50)).answered);
}

TEST_F(Status, another_users_socket_is_no_rank_of_this_user) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  os::OtherUser other([&] {
    auto listener = os::listen_unix_abstract(name_);
    if (!listener || !os::wait_ready(*listener, os::Direction::read, kClock.now() + seconds(30), kClock)) return false;
    auto query = os::accept_connection(*listener);
    if (!query || !*query) return false;
    say(**query, "end\n");  // fails if the caller has closed
    return true;
  });
  wait_for([&] { return !os::abstract_listeners(name_).empty(); });
  EXPECT_TRUE(ranks_of(job_).empty());
  EXPECT_TRUE(other.succeeded());
}

TEST_F(Status, root_sees_the_user_of_a_rank) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  const std::string done = "qccl-test/done/" + job_;
  os::OtherUser other([&] {
    const comm::StatusServer server(rank_of(job_), [](RankStatus&) {});
    return wait_for([&] { return !os::abstract_listeners(done).empty(); });
  });
  EXPECT_TRUE(wait_for([&] { return !ranks_of(job_).empty(); }));
  const RankStatus rank = only_rank();
  const auto listener = os::listen_unix_abstract(done).take_or_throw();
  EXPECT_TRUE(rank.answered);
  EXPECT_EQ(rank.user, os::OtherUser::kUser);
  EXPECT_TRUE(other.succeeded());
}

}  // namespace
}  // namespace qccl

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
