// Frames over hosts' queues that drop: how full TCP keeps the line, and that each frame arrives once and in order.
#include "transport/sim/packets.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "transport/sim/network.h"

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr double kLineRate = 12.5e6;  // 100 Mbit/s
constexpr double kPayloadRate = kLineRate * 1448 / 1514;
constexpr Nanoseconds kLatency = milliseconds(10);  // one way
constexpr std::uint64_t kProduct = 250'000;         // of the rate and the round trip, in bytes
constexpr std::size_t kFrame = 64 * 1024;
constexpr CongestionControl kBoth[] = {CongestionControl::cubic, CongestionControl::bbr};

NetworkOptions line(CongestionControl congestion, std::uint64_t queue_bytes) {
  return {.bytes_per_second = kLineRate,
          .latency = kLatency,
          .slots = SIZE_MAX / 2,
          .ingress_bytes_per_second = kLineRate,
          .up_queue_bytes = queue_bytes,
          .down_queue_bytes = queue_bytes,
          .congestion = congestion,
          .size_only = true};
}

void send_frames(Network& network, int from, int to, std::size_t frames) {
  for (std::size_t i = 0; i < frames; ++i) {
    Reservation room = network.endpoint(from).reserve(WorldRank(to), kFrame, TrafficClass::data);
    ASSERT_TRUE(room);
    network.endpoint(from).commit(std::move(room), kFrame, {});
  }
}

// Runs to `end`. Returns the bytes that the rank has received from each sender.
std::vector<std::size_t> receive_all(Network& network, int rank, TimePoint end = kForever) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(network.world()));
  while (network.next_arrival() <= end && network.advance()) {
    while (const auto frame = network.endpoint(rank).receive()) {
      bytes[static_cast<std::size_t>(frame->peer.value())] += frame->bytes.size();
      network.endpoint(rank).release(*frame);
    }
  }
  return bytes;
}

double elapsed(Network& network) { return std::chrono::duration<double>(network.clock().now() - TimePoint{}).count(); }

TEST(Packets, one_connection_fills_a_line_whose_queue_holds_a_bandwidth_delay_product) {
  for (const CongestionControl congestion : kBoth) {
    Network network(2, 1, line(congestion, kProduct));
    send_frames(network, 0, 1, 800);
    EXPECT_EQ(receive_all(network, 1)[0], 800 * kFrame);
    const double least = 800 * kFrame / kPayloadRate + 0.01;
    EXPECT_GT(elapsed(network), least);
    EXPECT_LT(elapsed(network), 1.06 * least);
    EXPECT_EQ(network.flights().packets().timeouts, 0u);
  }
}

TEST(Packets, a_queue_much_too_small_drops_and_leaves_cubic_part_of_the_line_and_bbr_most) {
  double times[2];
  for (const CongestionControl congestion : kBoth) {
    Network network(2, 1, line(congestion, kProduct / 16));
    send_frames(network, 0, 1, 800);
    EXPECT_EQ(receive_all(network, 1)[0], 800 * kFrame);
    EXPECT_GT(network.flights().packets().dropped_up, 5u);
    EXPECT_GE(network.flights().packets().sent_again, network.flights().packets().dropped_up);
    times[static_cast<int>(congestion)] = elapsed(network) / (800 * kFrame / kPayloadRate);
  }
  EXPECT_GT(times[0], 1.1);
  EXPECT_LT(times[0], 3);
  EXPECT_LT(times[1], 1.25);
}

TEST(Packets, two_connections_share_a_line) {
  for (const CongestionControl congestion : kBoth) {
    Network network(3, 1, line(congestion, kProduct));
    send_frames(network, 0, 2, 2000);
    send_frames(network, 1, 2, 2000);
    const auto bytes = receive_all(network, 2, TimePoint{} + std::chrono::seconds(8));
    const double all = 8 * kPayloadRate;
    for (const int sender : {0, 1}) {
      EXPECT_GT(static_cast<double>(bytes[static_cast<std::size_t>(sender)]) / all, 0.3) << sender;
    }
    EXPECT_GT(static_cast<double>(bytes[0] + bytes[1]) / all, 0.95);
    EXPECT_GT(network.flights().packets().dropped_down, 10 * network.flights().packets().dropped_up);
  }
}

TEST(Packets, losses_at_random_take_cubic_much_and_bbr_little) {
  double times[2];
  for (const CongestionControl congestion : kBoth) {
    NetworkOptions options = line(congestion, 4 * kProduct);
    options.loss = 0.01;
    Network network(2, 1, options);
    send_frames(network, 0, 1, 400);
    EXPECT_EQ(receive_all(network, 1)[0], 400 * kFrame);
    const PacketCounts counts = network.flights().packets();
    EXPECT_NEAR(static_cast<double>(counts.lost) / static_cast<double>(counts.sent), 0.01, 0.004);
    EXPECT_EQ(counts.dropped_up + counts.dropped_down, 0u);
    times[static_cast<int>(congestion)] = elapsed(network) / (400 * kFrame / kLineRate);
  }
  EXPECT_GT(times[0], 1.5);
  EXPECT_LT(times[1], 1.15);
}

// Three ranks send to each other frames of random sizes, of which the first bytes say the sender's number of it.
void expect_each_once_and_in_order(const NetworkOptions& options, std::uint64_t seed) {
  constexpr int kRanks = 3;
  constexpr std::uint32_t kFrames = 200;
  Network network(kRanks, seed, options);
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::byte>> sent(kFrames);
  for (std::uint32_t number = 0; number < kFrames; ++number) {
    for (int from = 0; from < kRanks; ++from) {
      for (int to = 0; to < kRanks; ++to) {
        if (from == to) continue;
        Reservation room = network.endpoint(from).reserve(WorldRank(to), 100'000, TrafficClass::data);
        ASSERT_TRUE(room);
        std::memcpy(room.bytes().data(), &number, sizeof(number));
        network.endpoint(from).commit(std::move(room), 4 + random() % 30'000, {});
      }
    }
  }
  std::vector<std::uint32_t> expected(kRanks * kRanks);
  while (network.advance()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      while (const auto frame = network.endpoint(rank).receive()) {
        std::uint32_t number = 0;
        std::memcpy(&number, frame->bytes.data(), sizeof(number));
        EXPECT_EQ(number, expected[static_cast<std::size_t>(frame->peer.value() * kRanks + rank)]++);
        network.endpoint(rank).release(*frame);
      }
    }
  }
  for (int pair = 0; pair < kRanks * kRanks; ++pair) {
    EXPECT_EQ(expected[static_cast<std::size_t>(pair)], pair / kRanks == pair % kRanks ? 0 : kFrames);
  }
  EXPECT_GT(network.flights().packets().dropped_up, 0u);
  EXPECT_GT(network.flights().packets().lost, 0u);
}

TEST(Packets, each_frame_arrives_once_and_in_order_whatever_is_dropped) {
  for (const CongestionControl congestion : kBoth) {
    for (const int connections : {1, 3}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        NetworkOptions options = line(congestion, 20'000);
        options.connections = connections;
        options.loss = 0.01;
        options.jitter = milliseconds(1);
        options.size_only = false;
        SCOPED_TRACE(seed);
        expect_each_once_and_in_order(options, seed);
      }
    }
  }
}

TEST(Packets, a_full_buffer_refuses_frames_until_the_line_has_taken_some) {
  NetworkOptions options = line(CongestionControl::cubic, kProduct);
  options.buffer_bytes = 2 * kFrame;
  Network network(2, 1, options);
  send_frames(network, 0, 1, 2);
  EXPECT_FALSE(network.endpoint(0).reserve(WorldRank(1), kFrame, TrafficClass::data));
  EXPECT_EQ(receive_all(network, 1)[0], 2 * kFrame);
  EXPECT_TRUE(network.endpoint(0).reserve(WorldRank(1), kFrame, TrafficClass::data));
}

TEST(Packets, delays_account_for_a_frames_time) {
  Network network(3, 1, line(CongestionControl::cubic, 60'000));
  send_frames(network, 0, 2, 100);
  send_frames(network, 1, 2, 100);
  receive_all(network, 2);
  const DelayBreakdown delays = network.processor(2).delays();
  EXPECT_EQ(delays.wire + delays.latency + delays.waiting, network.clock().now() - TimePoint{});
  EXPECT_EQ(delays.latency, kLatency);
  EXPECT_GT(delays.waiting, Nanoseconds(0));
}

TEST(Packets, the_seed_decides_which_are_lost) {
  const auto run = [](std::uint64_t seed) {
    NetworkOptions options = line(CongestionControl::bbr, kProduct / 4);
    options.loss = 0.02;
    Network network(2, seed, options);
    send_frames(network, 0, 1, 100);
    receive_all(network, 1);
    return std::pair(network.clock().now(), network.flights().packets().sent);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Packets, there_are_none_where_no_queue_ends_and_none_inside_a_host) {
  NetworkOptions options = line(CongestionControl::cubic, 0);
  options.hosts = {0, 0, 1};
  Network endless(3, 1, options);
  send_frames(endless, 0, 2, 1);
  EXPECT_EQ(receive_all(endless, 2)[0], kFrame);
  EXPECT_EQ(endless.flights().packets().sent, 0u);
  options.up_queue_bytes = kProduct;
  Network network(3, 1, options);
  send_frames(network, 0, 1, 1);
  EXPECT_EQ(receive_all(network, 1)[0], kFrame);
  EXPECT_EQ(network.flights().packets().sent, 0u);
  send_frames(network, 0, 2, 1);
  EXPECT_EQ(receive_all(network, 2)[0], kFrame);
  EXPECT_GT(network.flights().packets().sent, 4u);
}

}  // namespace
}  // namespace qccl::sim
