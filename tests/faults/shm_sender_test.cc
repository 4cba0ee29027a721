// A shared-memory link whose sender process is killed while it sends.
#include <dirent.h>

#include <set>

#include "faults/job.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "transport/mesh_test.h"
#include "transport/shm/shm_endpoint.h"

namespace qccl::testing {
namespace {

using transport_test::is_frame;
using transport_test::wait_limit;

constexpr std::uint64_t kFrames = 200;  // sent before the sender is killed

std::set<std::string> files_in_dev_shm() {
  std::set<std::string> names;
  if (DIR* folder = ::opendir("/dev/shm")) {
    while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
    ::closedir(folder);
  }
  return names;
}

// One end of a link between rank 0 and rank 1.
class LinkEnd {
 public:
  LinkEnd(Rank& rank, const std::string& name)
      : exports_(create_shm_exports(rank.rank(), 2)), poller_(os::Poller::create().take_or_throw()) {
    const std::shared_ptr<Store> store = rank.options().store;
    os::Fd socket = rank.rank() == 0 ? accept(name, *store) : connect(name, *store);
    std::vector<ShmLink> links;
    const int peer = 1 - rank.rank();
    links.push_back(make_shm_link(std::move(socket), exports_, peer, wait_limit(), SteadyClock()).take_or_throw());
    endpoint_ = make_shm_endpoint(poller_, {.world = 2}, std::move(exports_), std::move(links)).take_or_throw();
  }
  Endpoint& operator*() { return *endpoint_; }
  Endpoint* operator->() { return endpoint_.get(); }

 private:
  static os::Fd accept(const std::string& name, Store& store) {
    const os::Fd listener = os::listen_unix_abstract(name).take_or_throw();
    store.set("listening", name);
    os::wait_ready(listener, os::Direction::read, wait_limit(), SteadyClock()).take_or_throw();
    return os::accept_connection(listener).take_or_throw().value();
  }
  static os::Fd connect(const std::string& name, Store& store) {
    store.get("listening", Milliseconds(60'000));
    return os::connect_unix_abstract(name).take_or_throw();
  }

  ShmExports exports_;
  os::Poller poller_;
  std::unique_ptr<Endpoint> endpoint_;
};

// Sends numbered frames until the process is killed.
void send_until_killed(Rank& rank, Endpoint& endpoint) {
  for (std::uint64_t number = 0; !endpoint.next_loss();) {
    if (number == kFrames) rank.point("sending");
    if (transport_test::send_frame(endpoint, 0, number % 3 == 0 ? 10'000 : 100, number)) {
      ++number;
    } else if (!endpoint.progress()) {
      endpoint.sleep(wait_limit(), SteadyClock());
    }
  }
}

// All frames that arrive until the sender is lost, and the loss.
std::pair<std::vector<ReceivedFrame>, Transport::PeerLoss> receive_until_loss(Endpoint& endpoint) {
  std::vector<ReceivedFrame> frames;
  std::optional<Transport::PeerLoss> loss;
  while (true) {
    if (const auto frame = endpoint.receive()) {
      frames.push_back(*frame);
    } else if (loss) {
      return {frames, *loss};
    } else if (!(loss = endpoint.next_loss())) {
      endpoint.sleep(wait_limit(), SteadyClock());
    }
  }
}

TEST(ShmSender, that_is_killed_is_lost_at_once_and_what_it_sent_stays_readable) {
  const std::string name = "qccl-test-" + std::to_string(os::random_nonce());
  const Fault kill{.rank = 1, .point = "sending", .after = Milliseconds(5)};
  const Report report = run_ranks({.world = 2, .faults = {kill}}, [&](Rank& rank) {
    LinkEnd end(rank, name);
    if (rank.rank() == 1) return send_until_killed(rank, *end);
    const auto [frames, loss] = receive_until_loss(*end);
    rank.point("lost");
    EXPECT_EQ(loss.peer, WorldRank(1));
    EXPECT_EQ(loss.cause, "closed the connection (end of file)");
    EXPECT_GE(frames.size(), kFrames);
    for (std::uint64_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(is_frame(frames[i].bytes, i)) << i;
    for (const auto& frame : frames) end->release(frame);
    for (const auto& file : files_in_dev_shm()) EXPECT_EQ(file.find("qccl"), std::string::npos) << file;
  });
  ASSERT_TRUE(report.passed);
  EXPECT_LT(report.ranks[0].points.at("lost") - *report.ranks[1].fault, std::chrono::seconds(5));
}

}  // namespace
}  // namespace qccl::testing
