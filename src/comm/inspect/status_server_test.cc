// The status server while its process has no descriptors left.
#include "comm/inspect/status_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

// While it lives the process can open `left` more descriptors.
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

std::string answer_of(const os::Fd& connection) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + std::chrono::seconds(30);
  std::string text;
  std::array<std::byte, 256> buffer;
  while (os::wait_ready(connection, os::Direction::read, deadline, clock).take_or_throw()) {
    const auto got = os::read_some(connection.get(), buffer);
    if (got.lost()) return text;
    text.append(reinterpret_cast<const char*>(buffer.data()), got.bytes);
  }
  return "no answer";
}

// In which round the server meets the want of descriptors is up to the scheduler; it must survive it in all of them.
TEST(StatusServer, answers_once_there_are_descriptors_again) {
  RankStatus self;
  self.process = os::process_id();
  self.world = 1;
  self.job = "few";
  const StatusServer server(self, [](RankStatus& status) { status.groups.push_back({"world", 3, ""}); });
  for (int round = 0; round < 20; ++round) {
    os::Fd connection;
    {
      const FewDescriptors one(1);
      connection = os::connect_unix_abstract(status_socket_name(self)).take_or_throw();
      std::this_thread::yield();
    }
    RankStatus status;
    ASSERT_TRUE(decode_status(answer_of(connection), status).ok()) << "round " << round;
    ASSERT_EQ(status.groups.size(), 1u);
    EXPECT_EQ(status.groups[0].calls, 3u);
  }
}

}  // namespace
}  // namespace qccl::comm
