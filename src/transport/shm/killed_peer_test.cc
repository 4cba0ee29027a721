// A peer in a process of its own that is killed while it sends.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <set>
#include <string>
#include <vector>

#include "os/process.h"
#include "os/socket.h"
#include "transport/shm/test_host.h"

namespace qccl::shm {
namespace {

using testing::is_frame;
using testing::patience;
using testing::send_frame;

std::set<std::string> files_in_dev_shm() {
  std::set<std::string> names;
  if (DIR* folder = ::opendir("/dev/shm")) {
    while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
    ::closedir(folder);
  }
  return names;
}

// Rank 1: connects, then sends numbered frames until it is killed. Returns only if that fails.
int run_victim(const std::string& name) {
  auto socket = os::connect_unix_abstract(name);
  auto home = create_shm_home(1, 2);
  auto poller = os::Poller::create();
  if (!socket.ok() || !home.ok() || !poller.ok()) return 1;
  auto link = make_shm_link(std::move(*socket), *home, 0, patience(), SteadyClock());
  if (!link.ok()) return 2;
  std::vector<ShmLink> links;
  links.push_back(std::move(*link));
  auto endpoint = make_shm_endpoint(*poller, 2, std::move(*home), std::move(links));
  if (!endpoint.ok()) return 3;
  for (std::uint64_t number = 0;;) {
    if (send_frame(**endpoint, 0, number % 3 == 0 ? 10'000 : 100, number)) {
      ++number;
    } else if (!(*endpoint)->progress()) {
      (*endpoint)->sleep(patience(), SteadyClock());
    }
    if ((*endpoint)->next_loss()) return 4;
  }
}

class KilledPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "qccl-test-" + std::to_string(os::random_nonce());
    auto listener = os::listen_unix_abstract(name);
    ASSERT_TRUE(listener.ok());
    victim_ = ::fork();
    if (victim_ == 0) ::_exit(run_victim(name));
    ASSERT_GT(victim_, 0);
    ASSERT_TRUE(*os::wait_ready(*listener, os::Direction::read, patience(), SteadyClock()));
    auto socket = os::accept_connection(*listener);
    ASSERT_TRUE(socket.ok() && socket->has_value());
    auto home = create_shm_home(0, 2);
    poller_ = std::make_unique<os::Poller>(std::move(*os::Poller::create()));
    auto link = make_shm_link(std::move(**socket), *home, 1, patience(), SteadyClock());
    ASSERT_TRUE(link.ok()) << link.error().message;
    std::vector<ShmLink> links;
    links.push_back(std::move(*link));
    endpoint_ = std::move(*make_shm_endpoint(*poller_, 2, std::move(*home), std::move(links)));
  }
  void TearDown() override { kill_victim(); }

  void kill_victim() {
    if (victim_ <= 0) return;
    ::kill(victim_, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(victim_, &status, 0), victim_);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the victim gave up with " << WEXITSTATUS(status);
    victim_ = -1;
  }
  // The next frame, if it comes in time.
  std::optional<ReceivedFrame> await_frame() {
    const SteadyClock clock;
    const TimePoint limit = patience();
    while (clock.now() < limit) {
      if (auto frame = endpoint_->receive()) return frame;
      endpoint_->sleep(limit, clock);
    }
    return std::nullopt;
  }

  pid_t victim_ = -1;
  std::unique_ptr<os::Poller> poller_;
  std::unique_ptr<Endpoint> endpoint_;
};

TEST_F(KilledPeer, is_lost_at_once_and_what_it_sent_stays_readable) {
  std::vector<ReceivedFrame> frames;
  while (frames.size() < 200) {
    const auto frame = await_frame();
    ASSERT_TRUE(frame) << "after " << frames.size();
    frames.push_back(*frame);
  }
  kill_victim();
  const SteadyClock clock;
  const TimePoint killed = clock.now();
  std::optional<Transport::PeerLoss> loss;
  while (!(loss = endpoint_->next_loss())) {
    ASSERT_LT(clock.now() - killed, std::chrono::seconds(5));
    if (const auto frame = endpoint_->receive()) {
      frames.push_back(*frame);
    } else {
      endpoint_->sleep(patience(), clock);
    }
  }
  EXPECT_EQ(loss->peer, 1);
  EXPECT_EQ(loss->cause, "closed the connection (end of file)");
  for (std::uint64_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(is_frame(frames[i].bytes, i));
  for (const auto& frame : frames) endpoint_->release(frame);
}

TEST_F(KilledPeer, leaves_nothing_in_dev_shm) {
  const auto while_it_runs = files_in_dev_shm();
  const auto frame = await_frame();
  ASSERT_TRUE(frame);
  EXPECT_TRUE(is_frame(frame->bytes, 0));
  kill_victim();
  for (const auto& name : files_in_dev_shm()) EXPECT_EQ(name.find("qccl"), std::string::npos) << name;
  for (const auto& name : while_it_runs) EXPECT_EQ(name.find("qccl"), std::string::npos) << name;
}

}  // namespace
}  // namespace qccl::shm
