#include "transport/pacing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/expect_failure.h"

namespace qccl {
namespace {

using namespace std::chrono_literals;

// Accepts every frame at once. Records what it is asked, and answers each question in its own way.
class Sink final : public Transport, private Reservation::Owner {
 public:
  explicit Sink(ManualClock& manual) : clock_(manual) {}
  Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override {
    if (full) return {};
    buffer_.resize(max_bytes);
    return {*this, peer, traffic, buffer_};
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    sent += room.append(bytes, payload);
    room.forget();
  }
  std::optional<ReceivedFrame> receive() override { return ReceivedFrame{WorldRank(1), {}}; }
  void release(const ReceivedFrame& frame) override { note("release", frame.peer); }
  void set_placement(PayloadPlacement* placement) override { asked += placement == nullptr ? "no placement;" : ""; }
  void withdraw() override { asked += "withdraw;"; }
  bool progress() override { return true; }
  std::optional<PeerLoss> next_loss() override { return PeerLoss{WorldRank(2), "lost"}; }
  void disconnect(WorldRank peer) override { note("disconnect", peer); }
  void sleep(TimePoint deadline, const Clock&) override {
    slept_until = deadline;
    clock_.advance_to(deadline);
  }
  void wake() override { asked += "wake;"; }
  TimePoint next_send_time() const override { return kForever; }
  Nanoseconds round_trip(WorldRank peer) const override { return Nanoseconds(peer.value()); }
  Acknowledged acknowledged(WorldRank peer) const override {
    return {.bytes = static_cast<std::uint64_t>(peer.value()), .waits = true};
  }
  void adapt(TimePoint) override { ++adapted; }
  bool is_local(WorldRank peer) const override { return peer == WorldRank(1); }
  ExchangeCells* board() override { return &own_board; }
  HostMemory host_memory() override { return {&own_heap, nullptr}; }
  const char* kind(WorldRank) const override { return "sink"; }
  int connections(WorldRank peer) const override { return peer.value(); }
  bool flushed() const override { return is_flushed; }
  void set_close_patience(Nanoseconds patience) override { close_patience = patience; }
  void close() override { asked += "close;"; }

  struct NoHeap final : SharedHeap {
    Result<Block> allocate(std::size_t) override { return Failure(ErrorKind::unsupported, "no heap"); }
    bool reaches(WorldRank) const override { return false; }
    Result<Memory> map(WorldRank, std::uint64_t, std::size_t) override {
      return Failure(ErrorKind::unsupported, "no heap");
    }
  } own_heap;
  struct NoBoard final : ExchangeCells {
    bool open(std::uint64_t) override { return false; }
    void close(std::uint64_t) override {}
    void publish(std::uint64_t, std::uint64_t, std::uint64_t, ConstBytes) override {}
    void ring(std::uint64_t) override {}
    std::optional<ExchangeCell> read(std::uint64_t, WorldRank, std::uint64_t) override { return std::nullopt; }
  } own_board;
  bool full = false;
  int adapted = 0;
  bool is_flushed = false;
  Nanoseconds close_patience{};
  std::string asked;
  std::uint64_t sent = 0;
  TimePoint slept_until{};

 private:
  void note(const char* what, WorldRank peer) { asked += std::string(what) + " " + std::to_string(peer.value()) + ";"; }
  void give_back(const Reservation&) override { asked += "give back;"; }

  ManualClock& clock_;
  std::vector<std::byte> buffer_;
};

struct Paced {
  explicit Paced(std::uint64_t bytes_per_second) {
    clock.advance(1h);
    auto inner = std::make_unique<Sink>(clock);
    sink = inner.get();
    transport = std::make_unique<PacedTransport>(std::move(inner), bytes_per_second, clock);
  }
  bool send(std::size_t bytes, TrafficClass traffic = TrafficClass::data) {
    Reservation room = transport->reserve(WorldRank(1), bytes, traffic);
    if (!room) return false;
    transport->commit(std::move(room), bytes, {});
    return true;
  }
  // Sends until it is refused.
  std::uint64_t drain(std::size_t frame_bytes) {
    const std::uint64_t before = sink->sent;
    while (send(frame_bytes)) continue;
    return sink->sent - before;
  }

  ManualClock clock;
  Sink* sink = nullptr;
  std::unique_ptr<PacedTransport> transport;
};

TEST(LinkRate, reads_bits_and_bytes_per_second) {
  const std::pair<const char*, std::uint64_t> rates[] = {{"1gbit", 125'000'000},
                                                         {"2.5gbit", 312'500'000},
                                                         {"100mbit", 12'500'000},
                                                         {"800kbit", 100'000},
                                                         {"16bit", 2},
                                                         {"1Gbit/s", 125'000'000},
                                                         {"10MBps", 10'000'000},
                                                         {"10MB/s", 10'000'000},
                                                         {"1.25GB/s", 1'250'000'000},
                                                         {"500KBps", 500'000},
                                                         {"7B/s", 7}};
  for (const auto& [text, bytes_per_second] : rates) EXPECT_EQ(parse_link_rate(text).value(), bytes_per_second) << text;
}

TEST(LinkRate, anything_else_is_invalid_argument_that_lists_the_forms) {
  for (const char* text :
       {"", "gbit", "1", "1 gbit", "1gbits", "10mbps", "10Mbps", "10MB", "-1gbit", "0gbit", "1e3mbit", "nangbit",
        "infgbit", "1gbitps", "1bit", "99999999999gbit", "1gbit/s/s", "0x1gbit"}) {
    for (const std::string& words : {"\"" + std::string(text) + "\"", std::string("2.5gbit"), std::string("10MBps")}) {
      expect_failure(parse_link_rate(text), ErrorKind::invalid_argument, words);
    }
  }
}

TEST(Pacing, the_long_run_rate_is_exact_within_a_percent_for_any_frame_size_and_rate) {
  std::mt19937 random(1);
  for (const std::uint64_t rate :
       {std::uint64_t{100'000}, std::uint64_t{12'500'000}, std::uint64_t{125'000'000}, std::uint64_t{9'999'999'999}}) {
    for (const std::size_t largest : {std::size_t{100}, std::size_t{5000}, kMaxFrameBytes}) {
      Paced paced(rate);
      const auto begin = paced.clock.now();
      const double burst = std::max(65536.0, static_cast<double>(rate) / 1000);
      while (static_cast<double>(paced.sink->sent) < 50 * std::max(burst, static_cast<double>(largest))) {
        const std::size_t bytes = 64 + random() % (largest - 63);
        while (!paced.send(bytes)) paced.clock.advance_to(paced.transport->next_send_time());
      }
      const double seconds = std::chrono::duration<double>(paced.clock.now() - begin).count();
      // The last frame is sent, but not yet paid for.
      const double paid = static_cast<double>(paced.sink->sent) - burst - static_cast<double>(largest) / 2;
      const double expected = paid / static_cast<double>(rate);
      EXPECT_NEAR(seconds, expected, 0.01 * expected + static_cast<double>(largest) / static_cast<double>(rate))
          << rate << " bytes/s, frames up to " << largest;
    }
  }
}

TEST(Pacing, the_burst_after_a_pause_is_a_millisecond_or_64_kibibytes) {
  Paced fast(1'000'000'000);
  EXPECT_NEAR(static_cast<double>(fast.drain(1000)), 1e6, 1001);
  fast.clock.advance(1h);
  EXPECT_NEAR(static_cast<double>(fast.drain(1000)), 1e6, 1001);
  Paced slow(1'000'000);
  EXPECT_NEAR(static_cast<double>(slow.drain(1000)), 65536, 1001);
  slow.clock.advance(1h);
  EXPECT_NEAR(static_cast<double>(slow.drain(1000)), 65536, 1001);
}

TEST(Pacing, a_frame_larger_than_the_burst_is_sent_and_its_debt_is_paid_first) {
  Paced paced(1'000'000);
  ASSERT_TRUE(paced.send(kMaxFrameBytes));
  EXPECT_FALSE(paced.send(64));
  const auto debt = Nanoseconds((kMaxFrameBytes - 65536) * 1000);
  EXPECT_EQ(paced.transport->next_send_time(), paced.clock.now() + debt);
  paced.clock.advance(debt - 1us);
  EXPECT_FALSE(paced.send(64));
  paced.clock.advance(1us);
  EXPECT_TRUE(paced.send(64));
}

TEST(Pacing, control_is_neither_refused_nor_charged) {
  Paced paced(1'000'000);
  paced.drain(1000);
  const auto next = paced.transport->next_send_time();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(paced.send(1000, TrafficClass::control));
  EXPECT_FALSE(paced.send(1000));
  EXPECT_EQ(paced.transport->next_send_time(), next);
}

TEST(Pacing, an_unused_reservation_costs_nothing) {
  Paced paced(1'000'000);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(paced.transport->reserve(WorldRank(1), kMaxFrameBytes, TrafficClass::data));
  }
  EXPECT_EQ(paced.drain(65536), 131072u);
}

TEST(Pacing, no_refusal_means_no_send_time) {
  Paced paced(1'000'000);
  EXPECT_EQ(paced.transport->next_send_time(), kForever);
  ASSERT_TRUE(paced.send(kMaxFrameBytes));
  EXPECT_EQ(paced.transport->next_send_time(), kForever) << "no send was refused yet";
  paced.clock.advance(1h);
  paced.sink->full = true;
  EXPECT_FALSE(paced.send(64)) << "the inner transport is full, which pacing cannot time";
  EXPECT_EQ(paced.transport->next_send_time(), kForever);
}

TEST(Pacing, a_sleep_ends_when_the_refused_send_may_proceed) {
  Paced paced(1'000'000);
  paced.drain(1000);
  const auto next = paced.transport->next_send_time();
  ASSERT_NE(next, kForever);
  paced.transport->sleep(kForever, paced.clock);
  EXPECT_EQ(paced.sink->slept_until, next);
  EXPECT_EQ(paced.transport->next_send_time(), kForever) << "a sender that gave up must not keep anyone awake";
  EXPECT_TRUE(paced.send(1000));
  EXPECT_FALSE(paced.send(1000));
  const auto earlier = paced.clock.now() + 1us;
  paced.transport->sleep(earlier, paced.clock);
  EXPECT_EQ(paced.sink->slept_until, earlier);
  EXPECT_NE(paced.transport->next_send_time(), kForever);
}

TEST(Pacing, each_frame_is_charged_as_the_traffic_for_which_its_room_was_reserved) {
  Paced paced(1'000'000);
  Transport& transport = *paced.transport;
  Reservation data = transport.reserve(WorldRank(1), kMaxFrameBytes, TrafficClass::data);
  Reservation control = transport.reserve(WorldRank(1), 1000, TrafficClass::control);
  transport.commit(std::move(control), 1000, {});
  EXPECT_TRUE(transport.reserve(WorldRank(1), 1000, TrafficClass::data));
  const std::vector<std::byte> payload(kMaxFrameBytes - 64);
  transport.commit(std::move(data), 64, payload);
  EXPECT_EQ(paced.sink->sent, 1000 + kMaxFrameBytes);
  EXPECT_FALSE(transport.reserve(WorldRank(1), 1000, TrafficClass::data)) << "the payload counts";
}

TEST(Pacing, passes_everything_else_on_but_has_no_shared_memory) {
  Paced paced(1'000'000);
  Transport& transport = *paced.transport;
  EXPECT_EQ(transport.board(), nullptr);
  EXPECT_EQ(transport.host_memory().heap, nullptr);
  EXPECT_STREQ(transport.kind(WorldRank(1)), "sink");
  EXPECT_TRUE(transport.is_local(WorldRank(1)));
  EXPECT_FALSE(transport.is_local(WorldRank(2)));
  EXPECT_EQ(transport.round_trip(WorldRank(3)), 3ns);
  EXPECT_EQ(transport.acknowledged(WorldRank(4)).bytes, 4u);
  EXPECT_TRUE(transport.acknowledged(WorldRank(4)).waits);
  transport.adapt({});
  EXPECT_EQ(paced.sink->adapted, 1);
  EXPECT_EQ(transport.connections(WorldRank(5)), 5);
  EXPECT_EQ(transport.receive()->peer, WorldRank(1));
  EXPECT_EQ(transport.next_loss()->cause, "lost");
  EXPECT_TRUE(transport.progress());
  EXPECT_FALSE(transport.flushed());
  paced.sink->is_flushed = true;
  EXPECT_TRUE(transport.flushed());
  transport.set_close_patience(7ms);
  EXPECT_EQ(paced.sink->close_patience, 7ms);
  transport.set_placement(nullptr);
  transport.withdraw();
  transport.release({WorldRank(6), {}});
  transport.disconnect(WorldRank(7));
  transport.wake();
  static_cast<void>(transport.reserve(WorldRank(1), 64, TrafficClass::data));
  transport.close();
  EXPECT_EQ(paced.sink->asked, "no placement;withdraw;release 6;disconnect 7;wake;give back;close;");
}

}  // namespace
}  // namespace qccl
