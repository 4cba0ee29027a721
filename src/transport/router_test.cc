#include "transport/router.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <set>
#include <thread>

#include "os/memory.h"
#include "os/net/socket.h"
#include "transport/tcp/tcp_endpoint.h"
#include "wire/frame.h"

namespace qccl {
namespace {

using namespace std::chrono_literals;

const SteadyClock steady;

struct Nothing final : ExchangeCells {
  bool open(std::uint64_t) override { return true; }
  void close(std::uint64_t) override {}
  void publish(std::uint64_t, std::uint64_t, std::uint64_t, ConstBytes) override {}
  void ring(std::uint64_t) override {}
  std::optional<ExchangeCell> read(std::uint64_t, WorldRank, std::uint64_t) override { return std::nullopt; }
};

// An endpoint that records its calls; the test sets its frames and readiness.
class Scripted final : public Endpoint {
 public:
  Scripted(os::Poller& poller, std::uint8_t token_space, const char* name)
      : Endpoint(poller, token_space), name_(name), bell_(os::create_eventfd().take_or_throw()) {
    EXPECT_TRUE(poller.watch(bell_.get(), token(77)).ok());
  }
  void ring() { os::ring_eventfd(bell_); }

  Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass) override {
    reserved_for = peer.value();
    return Bytes(room_).first(max_bytes);
  }
  void commit(std::size_t actual_bytes) override { committed = actual_bytes; }
  std::optional<ReceivedFrame> receive() override {
    if (frames.empty()) return std::nullopt;
    const ReceivedFrame frame{WorldRank(frames.front()), {}, this};
    frames.pop_front();
    return frame;
  }
  void release(const ReceivedFrame& frame) override { released.insert(frame.peer.value()); }
  bool progress() override { return moves; }
  std::optional<PeerLoss> next_loss() override {
    if (losses.empty()) return std::nullopt;
    const PeerLoss loss{WorldRank(losses.front()), name_};
    losses.pop_front();
    return loss;
  }
  void disconnect(WorldRank peer) override { disconnected.insert(peer.value()); }
  bool arm() override {
    armed = true;
    return may_sleep;
  }
  void disarm() override {
    EXPECT_TRUE(armed);
    armed = false;
  }
  void ready(const os::Poller::Ready& event) override {
    EXPECT_TRUE(armed);
    EXPECT_EQ(index_of(event.token), 77u);
    EXPECT_TRUE(os::drain_eventfd(bell_));
    ++woken;
  }
  bool is_local(WorldRank) const override { return name_[0] == 'l'; }
  ExchangeCells* board() override { return &own_board; }
  const char* kind(WorldRank) const override { return name_; }
  bool flushed() const override { return is_flushed; }
  void close() override { closed = true; }

  Nothing own_board;
  std::deque<int> frames, losses;
  std::set<int> released, disconnected;
  bool moves = false, armed = false, may_sleep = true, is_flushed = true, closed = false;
  int reserved_for = -1, woken = 0;
  std::size_t committed = 0;

 private:
  const char* name_;
  os::Fd bell_;
  std::array<std::byte, 256> room_{};
};

// Ranks 1 and 2 are on `near`, 3 on `far`; this is rank 0.
struct Two {
  explicit Two(std::vector<int> endpoint_of_rank = {-1, 0, 0, 1}) {
    auto poller = std::make_unique<os::Poller>(os::Poller::create().take_or_throw());
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    auto first = std::make_unique<Scripted>(*poller, 1, "local");
    auto second = std::make_unique<Scripted>(*poller, 2, "remote");
    near = first.get();
    far = second.get();
    endpoints.push_back(std::move(first));
    endpoints.push_back(std::move(second));
    router = std::make_unique<Router>(std::move(poller), std::move(endpoints), std::move(endpoint_of_rank));
  }
  Scripted* near;
  Scripted* far;
  std::unique_ptr<Router> router;
};

TEST(Router, disconnects_by_the_endpoint_of_the_peer) {
  Two two;
  two.router->disconnect(WorldRank(3));
  two.router->disconnect(WorldRank(1));
  EXPECT_EQ(two.far->disconnected, std::set<int>{3});
  EXPECT_EQ(two.near->disconnected, std::set<int>{1});
}

TEST(Router, sends_by_the_endpoint_of_the_peer) {
  Two two;
  ASSERT_EQ(two.router->reserve(WorldRank(3), 100, TrafficClass::data).size(), 100u);
  two.router->commit(60);
  EXPECT_EQ(two.far->reserved_for, 3);
  EXPECT_EQ(two.far->committed, 60u);
  ASSERT_EQ(two.router->reserve(WorldRank(2), 10, TrafficClass::control).size(), 10u);
  two.router->commit(10);
  EXPECT_EQ(two.near->reserved_for, 2);
  EXPECT_EQ(two.near->committed, 10u);
  EXPECT_EQ(two.far->committed, 60u);
  EXPECT_STREQ(two.router->kind(WorldRank(1)), "local");
  EXPECT_STREQ(two.router->kind(WorldRank(3)), "remote");
  EXPECT_TRUE(two.router->is_local(WorldRank(1)));
  EXPECT_FALSE(two.router->is_local(WorldRank(3)));
}

TEST(Router, receives_from_all_endpoints_in_turns_and_releases_where_it_came_from) {
  Two two;
  two.near->frames = {1, 2, 1};
  two.far->frames = {3};
  std::vector<int> peers;
  while (auto frame = two.router->receive()) {
    peers.push_back(frame->peer.value());
    two.router->release(*frame);
  }
  EXPECT_EQ(peers, (std::vector<int>{1, 3, 2, 1}));
  EXPECT_EQ(two.near->released, (std::set<int>{1, 2}));
  EXPECT_EQ(two.far->released, (std::set<int>{3}));
}

TEST(Router, a_flood_on_one_endpoint_does_not_starve_the_other) {
  Two two;
  two.near->frames = std::deque<int>(100, 1);
  two.far->frames = std::deque<int>(10, 3);
  int from_far = 0;
  for (int i = 0; i < 20; ++i) from_far += two.router->receive()->peer == WorldRank(3) ? 1 : 0;
  EXPECT_EQ(from_far, 10);
}

TEST(Router, reports_progress_losses_and_flushing_of_every_endpoint) {
  Two two;
  EXPECT_FALSE(two.router->progress());
  two.far->moves = true;
  EXPECT_TRUE(two.router->progress());
  two.near->losses = {2};
  two.far->losses = {3};
  EXPECT_EQ(two.router->next_loss()->peer, WorldRank(2));
  EXPECT_EQ(two.router->next_loss()->peer, WorldRank(3));
  EXPECT_FALSE(two.router->next_loss().has_value());
  EXPECT_TRUE(two.router->flushed());
  two.far->is_flushed = false;
  EXPECT_FALSE(two.router->flushed());
  two.router->close();
  EXPECT_TRUE(two.near->closed && two.far->closed);
}

TEST(Router, wakes_the_endpoint_that_became_ready_and_only_it) {
  Two two;
  two.far->ring();
  two.router->sleep(kForever, steady);
  EXPECT_EQ(two.far->woken, 1);
  EXPECT_EQ(two.near->woken, 0);
  EXPECT_FALSE(two.near->armed || two.far->armed);
}

TEST(Router, does_not_sleep_if_any_endpoint_has_something_already) {
  for (const bool first : {true, false}) {
    Two two;
    (first ? two.near : two.far)->may_sleep = false;
    two.router->sleep(kForever, steady);
    EXPECT_FALSE(two.near->armed || two.far->armed);
  }
}

TEST(Router, a_wake_from_another_thread_ends_a_sleep) {
  Two two;
  std::thread waker([&] { two.router->wake(); });
  two.router->sleep(kForever, steady);
  waker.join();
  const auto begin = steady.now();
  two.router->sleep(begin + 1ms, steady);
  EXPECT_GE(steady.now() - begin, 1ms);
}

TEST(Router, has_a_board_only_if_one_endpoint_reaches_everyone) {
  EXPECT_EQ(Two({-1, 0, 0, 1}).router->board(), nullptr);
  EXPECT_EQ(Two({0, -1, 1, 1}).router->board(), nullptr);
  EXPECT_EQ(Two({-1}).router->board(), nullptr);
  Two all_near({0, -1, 0, 0});
  EXPECT_EQ(all_near.router->board(), &all_near.near->own_board);
}

TEST(Router, without_peers_it_only_sleeps) {
  Router alone(std::make_unique<os::Poller>(os::Poller::create().take_or_throw()), {}, {-1});
  EXPECT_FALSE(alone.progress());
  EXPECT_FALSE(alone.receive().has_value());
  EXPECT_TRUE(alone.flushed());
  alone.wake();
  alone.sleep(kForever, steady);
}

// Two peers of rank 0, each behind its own TCP endpoint.
TEST(Router, carries_frames_of_two_tcp_endpoints) {
  auto poller = std::make_unique<os::Poller>(os::Poller::create().take_or_throw());
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::array<os::Fd, 3> peers;
  for (const std::uint8_t rank : {1, 2}) {
    auto pair = os::socket_pair().take_or_throw();
    std::vector<os::Fd> sockets(3);
    sockets[rank] = std::move(pair.first);
    peers[rank] = std::move(pair.second);
    endpoints.push_back(make_tcp_endpoint(*poller, {.token_space = rank}, std::move(sockets)).take_or_throw());
  }
  Router router(std::move(poller), std::move(endpoints), {-1, 0, 1});
  std::array<std::byte, wire::kHeaderBytes> frame;
  for (const std::uint64_t rank : {1, 2}) {
    wire::FrameHeader header;
    header.sequence = rank;
    wire::encode_header(header, frame.data());
    ASSERT_EQ(os::write_some(peers[rank].get(), frame).bytes, frame.size());
  }
  std::set<int> senders;
  while (senders.size() < 2) {
    router.sleep(kForever, steady);
    router.progress();
    while (auto received = router.receive()) {
      EXPECT_EQ(wire::decode_header(received->bytes.data())->sequence, received->peer.index());
      senders.insert(received->peer.value());
      router.release(*received);
    }
  }
  peers[2].reset();
  std::optional<Transport::PeerLoss> loss;
  while (!loss) {
    router.sleep(kForever, steady);
    router.progress();
    loss = router.next_loss();
  }
  EXPECT_EQ(loss->peer, WorldRank(2));
}

}  // namespace
}  // namespace qccl
