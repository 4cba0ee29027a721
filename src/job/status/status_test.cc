// Queries of the ranks of this host, and sockets with a rank's name that are no rank's.
#include "qccl/status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "job/status/status_server.h"
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

// A rank that has made `calls` calls in the group of all.
class OneRank final : public comm::StatusServer::Source {
 public:
  explicit OneRank(std::uint64_t calls = 3) : calls_(calls) {}
  RankStatus own() override {
    RankStatus status;
    status.groups = {{.name = "world", .id = "1", .calls = calls_, .failure = ""}};
    return status;
  }
  std::vector<RankStatus> all(Nanoseconds) override { return {own()}; }

 private:
  const std::uint64_t calls_;
};

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
  OneRank source;
  const comm::StatusServer server(rank_of(job_), source);
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
  OneRank source;
  const comm::StatusServer server(rank_of(job_), source);
  for (int round = 0; round < 20; ++round) {
    os::Fd connection;
    {
      const FewDescriptors one(1);
      connection = os::connect_unix_abstract(name_).take_or_throw();
      std::this_thread::yield();
    }
    connection.reset();  // without a question
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
      const std::string line = R"({"groups": [{"name": "world"}]})";
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
  OneRank source;
  const comm::StatusServer server(rank_of(job_), source);
  const auto ranks = ranks_on_this_host(milliseconds(300));
  for (const std::string& job : {job_, silent_job}) {
    const auto rank = std::ranges::find(ranks, job, &RankStatus::job);
    ASSERT_NE(rank, ranks.end());
    EXPECT_EQ(rank->answered, job == job_);
  }
}

TEST_F(Status, a_trickle_ends_with_the_patience) {
  const Impostor slow(name_, [](const os::Fd& connection) {
    while (say(connection, " ")) std::this_thread::yield();
  });
  const TimePoint begin = kClock.now();
  EXPECT_FALSE(only_rank(milliseconds(200)).answered);
  EXPECT_LT(kClock.now() - begin, seconds(10));
}

TEST_F(Status, text_is_printable) {
  const Impostor rude(name_, [](const os::Fd& connection) {
    say(connection,
        "{\"groups\": [{\"name\": \"\\u001B]0;name\\u0007\", \"failure\": \"\\u001B[2Jfailure\"}], "
        "\"calls\": [{\"group\": \"\\u009B\", \"call\": \"\\u001B[31mred\"}]}");
  });
  const RankStatus rank = only_rank();
  ASSERT_TRUE(rank.answered);
  EXPECT_EQ(rank.groups[0].name, " ]0;name ");
  EXPECT_EQ(rank.groups[0].failure, " [2Jfailure");
  EXPECT_EQ(rank.calls[0].group, " ");
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
    say(**query, "{}");  // fails if the caller has closed
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
    OneRank source;
    const comm::StatusServer server(rank_of(job_), source);
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

TEST(StatusQuestion, is_read_back_as_it_was_asked_and_others_are_none) {
  const StatusQuestion question{.subject = StatusQuestion::Subject::job, .patience_ms = 500};
  const auto back = StatusQuestion::decode(question.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->subject, question.subject);
  EXPECT_EQ(back->patience_ms, 500u);
  for (const int subject : {0, 3, 255}) {
    auto bytes = question.encode();
    bytes[0] = static_cast<std::byte>(subject);
    EXPECT_FALSE(StatusQuestion::decode(bytes)) << subject;
  }
}

TEST(StatusQuestion, a_sockets_name_tells_which_rank_it_is) {
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
