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
#include "comm/inspect/status_server.h"
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

TEST(Status, a_rank_reports_its_calls_and_its_user) {
  const std::string job = make_job();
  const comm::StatusServer server(rank_of(job), [](RankStatus& status) { status.groups = {{"world", 3, ""}}; });
  const auto ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_TRUE(ranks[0].answered);
  EXPECT_EQ(ranks[0].groups[0].calls, 3u);
  EXPECT_EQ(ranks[0].process, os::process_id());
  EXPECT_EQ(ranks[0].user, os::own_credentials().user);
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
TEST(Status, a_rank_answers_once_there_are_descriptors_again) {
  const std::string job = make_job();
  const comm::StatusServer server(rank_of(job), [](RankStatus& status) { status.groups = {{"world", 3, ""}}; });
  for (int round = 0; round < 20; ++round) {
    os::Fd connection;
    {
      const FewDescriptors one(1);
      connection = os::connect_unix_abstract(comm::status_socket_name(rank_of(job))).take_or_throw();
      std::this_thread::yield();
    }
    const auto ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 1u);
    ASSERT_TRUE(ranks[0].answered) << "round " << round;
    EXPECT_EQ(ranks[0].groups.at(0).calls, 3u);
  }
}

// Has the name of a rank of this user and answers as the test says.
class Impostor {
 public:
  Impostor(const std::string& job, std::function<void(const os::Fd&)> answer)
      : listener_(os::listen_unix_abstract(comm::status_socket_name(rank_of(job))).take_or_throw()),
        thread_([this, answer = std::move(answer)] {
          os::wait_ready(listener_, os::Direction::read, kForever, kClock).take_or_throw();
          auto asked = os::accept_connection(listener_);
          if (asked && *asked) answer(**asked);
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

TEST(Status, an_endless_answer_is_cut_off_after_256_KiB_and_is_none) {
  const std::string job = make_job();
  std::size_t said = 0;
  {
    const Impostor endless(job, [&](const os::Fd& connection) {
      const std::string line = "group\tworld\t1\t\n";
      while (said < (std::size_t{64} << 20) && say(connection, line)) said += line.size();
    });
    const auto ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 1u);
    EXPECT_FALSE(ranks[0].answered);
  }
  EXPECT_LT(said, std::size_t{8} << 20) << "what sockets buffer comes on top";
}

TEST(Status, a_silent_socket_costs_the_patience_and_hides_no_rank) {
  const std::string silent_job = make_job(), job = make_job();
  const Impostor silent(silent_job, [](const os::Fd& connection) {
    os::wait_ready(connection, os::Direction::read, kClock.now() + seconds(30), kClock).take_or_throw();
  });
  const comm::StatusServer server(rank_of(job), [](RankStatus&) {});
  const auto ranks = ranks_on_this_host(milliseconds(300));
  const auto of_job = [&](const std::string& name) {
    return std::find_if(ranks.begin(), ranks.end(), [&](const RankStatus& rank) { return rank.job == name; });
  };
  ASSERT_NE(of_job(job), ranks.end());
  EXPECT_TRUE(of_job(job)->answered);
  ASSERT_NE(of_job(silent_job), ranks.end());
  EXPECT_FALSE(of_job(silent_job)->answered);
}

TEST(Status, a_trickle_ends_with_the_patience) {
  const std::string job = make_job();
  const Impostor slow(job, [](const os::Fd& connection) {
    while (say(connection, "group\tworld\t1\t\n")) std::this_thread::yield();
  });
  const TimePoint begin = kClock.now();
  EXPECT_FALSE(ranks_of(job, milliseconds(200)).at(0).answered);
  EXPECT_LT(kClock.now() - begin, seconds(10));
}

TEST(Status, text_is_printable) {
  const std::string job = make_job();
  const Impostor rude(job, [](const os::Fd& connection) {
    say(connection, "group\t\x1B]0;name\a\t1\t\x1B[2Jfailure\ncall\t\x9B\t1\t0\t0\t0\t\t\x1B[31mred\nend\n");
  });
  const auto ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 1u);
  ASSERT_TRUE(ranks[0].answered);
  EXPECT_EQ(ranks[0].groups[0].name, " ]0;name ");
  EXPECT_EQ(ranks[0].groups[0].failure, " [2Jfailure");
  EXPECT_EQ(ranks[0].calls[0].group, "?");
  EXPECT_EQ(ranks[0].calls[0].call, " [31mred");
  EXPECT_EQ(comm::parse_status_socket_name("qccl/status/0/\x1B[5m/1/0/7")->job, " [5m");
}

TEST(Status, a_rank_with_a_full_queue_of_queries_is_still_listed) {
  const std::string job = make_job();
  const std::string name = comm::status_socket_name(rank_of(job));
  const auto listener = os::listen_unix_abstract(name).take_or_throw();
  while (os::connect_unix_abstract(name).ok()) {
  }
  const auto ranks = ranks_of(job, milliseconds(50));
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_FALSE(ranks[0].answered);
}

TEST(Status, another_users_socket_is_no_rank_of_this_user) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  const std::string job = make_job();
  const std::string name = comm::status_socket_name(rank_of(job));
  os::OtherUser other([&] {
    auto listener = os::listen_unix_abstract(name);
    if (!listener || !os::wait_ready(*listener, os::Direction::read, kClock.now() + seconds(30), kClock)) return false;
    auto asked = os::accept_connection(*listener);
    if (!asked || !*asked) return false;
    say(**asked, "end\n");
    return true;
  });
  const TimePoint limit = kClock.now() + seconds(30);
  while (os::abstract_listeners(name).empty() && kClock.now() < limit) std::this_thread::yield();
  EXPECT_TRUE(ranks_of(job).empty());
  EXPECT_TRUE(other.succeeded());
}

TEST(Status, root_sees_the_user_of_a_rank) {
  if (!os::can_act_as_another()) GTEST_SKIP() << os::kNeedsRoot;
  const std::string job = make_job();
  os::OtherUser other([&] {
    const comm::StatusServer server(rank_of(job), [](RankStatus&) {});
    const TimePoint limit = kClock.now() + seconds(30);
    const std::string gone = "qccl-test/done/" + job;
    while (os::abstract_listeners(gone).empty() && kClock.now() < limit) std::this_thread::yield();
    return kClock.now() < limit;
  });
  std::vector<RankStatus> ranks;
  for (const TimePoint limit = kClock.now() + seconds(30); ranks.empty() && kClock.now() < limit;)
    ranks = ranks_of(job);
  const auto done = os::listen_unix_abstract("qccl-test/done/" + job).take_or_throw();
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_TRUE(ranks[0].answered);
  EXPECT_EQ(ranks[0].user, os::OtherUser::kUser);
  EXPECT_TRUE(other.succeeded());
}

}  // namespace
}  // namespace qccl
