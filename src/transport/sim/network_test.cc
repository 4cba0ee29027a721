// Arrival times of frames, from the rates and latencies of their routes.
#include "transport/sim/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace qccl::sim {
namespace {

using std::chrono::microseconds;

void send(Network& network, int from, int to, std::size_t bytes) {
  Reservation room = network.endpoint(from).reserve(WorldRank(to), bytes, TrafficClass::data);
  ASSERT_TRUE(room);
  network.endpoint(from).commit(std::move(room), bytes, {});
}

// The arrival time of the next frame, in microseconds.
double next(Network& network) {
  EXPECT_TRUE(network.advance());
  return static_cast<double>(network.clock().now().time_since_epoch().count()) / 1e3;
}

// 1000 bytes take 10 us out of a host and into it, 1 us inside; racks of two hosts of two ranks.
NetworkOptions racks() {
  return {.bytes_per_second = 1e8,
          .latency = microseconds(100),
          .ingress_bytes_per_second = 1e8,
          .hosts = {0, 0, 1, 1, 2, 2, 3, 3},
          .local_bytes_per_second = 1e9,
          .local_latency = microseconds(2),
          .hosts_per_rack = 2,
          .rack_bytes_per_second = 2.5e7};
}

TEST(Network, frame_takes_its_transmission_and_the_latency) {
  Network network(8, 1, racks());
  send(network, 0, 2, 1000);
  EXPECT_EQ(next(network), 110);
  EXPECT_FALSE(network.advance());
}

TEST(Network, frame_inside_a_host_uses_no_link) {
  Network network(8, 1, racks());
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 3);
  EXPECT_EQ(network.flights().wire_bytes(), 0U);
}

TEST(Network, ranks_of_a_host_queue_for_its_link) {
  Network network(8, 1, racks());
  send(network, 0, 2, 1000);
  send(network, 1, 3, 1000);
  EXPECT_EQ(next(network), 110);
  EXPECT_EQ(next(network), 120);
  EXPECT_EQ(network.processor(3).delays().wire, microseconds(20));
  EXPECT_EQ(network.processor(3).delays().latency, microseconds(100));
}

TEST(Network, senders_of_two_hosts_queue_for_the_receivers_link) {
  Network network(8, 1, {.bytes_per_second = 1e8, .latency = microseconds(100), .ingress_bytes_per_second = 1e8});
  send(network, 0, 2, 1000);
  send(network, 1, 2, 1000);
  EXPECT_EQ(next(network), 110);
  EXPECT_EQ(next(network), 120);
  EXPECT_EQ(network.processor(2).delays().waiting, microseconds(10));
}

TEST(Network, frame_to_another_rack_passes_its_uplink) {
  Network network(8, 1, racks());
  send(network, 0, 4, 1000);
  EXPECT_EQ(next(network), 140);  // the uplink is the slowest
  send(network, 2, 4, 1000);
  EXPECT_EQ(next(network), 280);
}

TEST(Network, frame_inside_a_site_takes_the_near_latency) {
  NetworkOptions options = racks();
  options.sites = {0, 0, 0, 0, 1, 1, 1, 1};
  options.near_latency = microseconds(20);
  Network network(8, 1, options);
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 3) << "one host";
  send(network, 0, 2, 1000);
  EXPECT_EQ(next(network), 3 + 30);
  send(network, 0, 4, 1000);
  EXPECT_EQ(next(network), 3 + 30 + 140);
}

// A frame of 1000 bytes takes 10 us and a latency of 100; the news of it takes another latency.
TEST(Network, a_connection_carries_its_buffer_in_a_round_trip) {
  Network network(2, 1, {.bytes_per_second = 1e8, .latency = microseconds(100), .buffer_bytes = 2000});
  const auto has_room = [&] { return bool(network.endpoint(0).reserve(WorldRank(1), 1000, TrafficClass::data)); };
  send(network, 0, 1, 1000);
  ASSERT_TRUE(has_room());
  send(network, 0, 1, 1000);
  EXPECT_FALSE(has_room());
  EXPECT_TRUE(network.endpoint(0).reserve(WorldRank(1), 64, TrafficClass::control));
  EXPECT_EQ(next(network), 110);
  EXPECT_EQ(next(network), 120);
  EXPECT_FALSE(has_room());
  network.take_woken();
  EXPECT_EQ(next(network), 210);
  EXPECT_TRUE(has_room());
  EXPECT_EQ(network.take_woken(), std::vector{0});
  EXPECT_EQ(next(network), 220);
  EXPECT_FALSE(network.advance());
}

TEST(Network, frames_spread_over_connections_with_caps_of_their_own) {
  for (const int connections : {1, 2}) {
    Network network(2, 1,
                    {.bytes_per_second = 1e8,
                     .latency = microseconds(100),
                     .connections = connections,
                     .flow_bytes_per_second = 1e7});
    send(network, 0, 1, 1000);
    send(network, 0, 1, 1000);
    EXPECT_EQ(next(network), 200);
    int arrived = 0;
    while (network.endpoint(1).receive()) ++arrived;
    EXPECT_EQ(arrived, connections);
  }
}

TEST(Network, frames_of_two_connections_are_received_in_the_order_of_sending) {
  Network network(2, 1, {.connections = 2, .flow_bytes_per_second = 1e7});
  send(network, 0, 1, 1000);
  send(network, 0, 1, 200);
  EXPECT_EQ(next(network), 20);
  EXPECT_FALSE(network.endpoint(1).receive()) << "the first is still on its way";
  EXPECT_EQ(next(network), 100);
  EXPECT_EQ(network.endpoint(1).receive()->bytes.size(), 1000u);
  EXPECT_EQ(network.endpoint(1).receive()->bytes.size(), 200u);
  EXPECT_EQ(network.processor(1).delays().wire, microseconds(100)) << "with the second's wait for the first";
}

TEST(Network, ranks_of_a_host_have_no_connections) {
  NetworkOptions options = racks();
  options.buffer_bytes = 1000;
  options.flow_bytes_per_second = 1e6;
  Network network(8, 1, options);
  send(network, 0, 1, 1000);
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 3);
}

TEST(Network, slow_host_sends_slowly_while_it_receives_slowly) {
  Network network(4, 1, {.bytes_per_second = 1e8, .ingress_bytes_per_second = 1e8, .slow_hosts = {{2, 1e7}}});
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 10);
  send(network, 0, 2, 1000);
  send(network, 2, 1, 500);
  EXPECT_EQ(next(network), 10 + 50);
  EXPECT_EQ(next(network), 10 + 100);
}

TEST(Network, slow_rank_sends_and_receives_slowly) {
  NetworkOptions options = racks();
  options.slow_ranks = {{2, 1e7}};
  Network network(8, 1, options);
  send(network, 0, 2, 1000);
  EXPECT_EQ(next(network), 200);
  send(network, 0, 3, 1000);
  EXPECT_EQ(next(network), 310);
}

TEST(Network, a_burst_passes_an_idle_link_at_once_and_comes_back_at_its_rate) {
  Network network(4, 1, {.bytes_per_second = 1e8, .ingress_bytes_per_second = 1e8, .burst_bytes = 1500});
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 0);
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 5);  // 500 bytes are left of the burst
  network.clock().advance(microseconds(10));
  send(network, 0, 1, 1000);
  EXPECT_EQ(next(network), 15);  // 1000 have been regained
  network.clock().advance(microseconds(100));
  send(network, 0, 1, 2000);
  EXPECT_EQ(next(network), 120);  // never more than 1500
}

TEST(Network, a_ranks_processor_takes_its_time_for_frames_and_work) {
  NetworkOptions options = racks();
  options.wire_work = {microseconds(2), 1e9};
  options.local_work = {microseconds(5), 0};
  Network network(8, 1, options);
  network.processor(0).work(microseconds(30));
  send(network, 0, 2, 1000);  // 3 us
  send(network, 0, 1, 1000);  // 5 us
  EXPECT_EQ(network.processor(0).free_at(), TimePoint(microseconds(38)));
  EXPECT_EQ(next(network), 38 + 3);
  EXPECT_EQ(next(network), 33 + 110);
  EXPECT_EQ(network.processor(2).delays().working, microseconds(33));
  EXPECT_EQ(network.processor(2).delays().waiting, microseconds(0));
  const auto received = network.endpoint(2).receive();
  EXPECT_EQ(network.processor(2).free_at(), TimePoint(microseconds(143 + 3)));
  EXPECT_EQ(network.processor(2).delays().working, microseconds(33 + 3));
  network.endpoint(2).release(*received);
}

TEST(Network, two_rooms_at_once_keep_their_bytes) {
  Network network(2, 1, {});
  std::vector<Reservation> rooms;
  for (const int i : {0, 1}) {
    rooms.push_back(network.endpoint(0).reserve(WorldRank(1), 1000, TrafficClass::data));
    std::ranges::fill(rooms.back().bytes(), std::byte(i));
  }
  const std::vector<std::byte> payload(10, std::byte{1});
  network.endpoint(0).commit(std::move(rooms[1]), 1000, {});
  network.endpoint(0).commit(std::move(rooms[0]), 990, payload);
  while (network.advance()) continue;
  for (const int first : {1, 0}) {
    const auto received = network.endpoint(1).receive();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->bytes.size(), 1000U);
    EXPECT_EQ(received->bytes.front(), std::byte(first));
    EXPECT_EQ(received->bytes.back(), std::byte{1});
    network.endpoint(1).release(*received);
  }
}

TEST(Network, frame_of_size_only_is_as_long_but_keeps_its_header_alone) {
  NetworkOptions options = racks();
  options.size_only = true;
  Network network(8, 1, options);
  Reservation frame = network.endpoint(0).reserve(WorldRank(2), 1000, TrafficClass::data);
  frame.bytes()[0] = std::byte{7};
  network.endpoint(0).commit(std::move(frame), 1000, {});
  EXPECT_EQ(next(network), 110);
  const auto received = network.endpoint(2).receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes.size(), 1000U);
  EXPECT_EQ(received->bytes[0], std::byte{7});
  network.endpoint(2).release(*received);
  EXPECT_EQ(network.endpoint(2).held().frames, 0U);
}

}  // namespace
}  // namespace qccl::sim
