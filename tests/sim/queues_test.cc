// Hosts whose queues drop what finds them full: how far a sum is from what the lines' rates allow, with the connections
// warm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "plan/cost/cost.h"
#include "sim/simulation.h"

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr double kMbit = 125e3;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Case {
  int hosts;
  double rate;  // bytes a second
  milliseconds latency;
  std::uint64_t bytes;
  std::uint64_t queue_bytes;
  Algorithm algorithm;
  CongestionControl congestion;
  double most;  // times the bound
};

SimulationOptions options_of(const Case& each) {
  SimulationOptions options;
  options.ranks = each.hosts;
  options.links.bytes_per_second = options.links.ingress_bytes_per_second = each.rate;
  options.links.latency = each.latency;
  options.links.slots = SIZE_MAX / 2;
  options.links.up_queue_bytes = options.links.down_queue_bytes = each.queue_bytes;
  options.links.congestion = each.congestion;
  options.window_bytes =
      plan::window_of(each.rate, 2 * std::chrono::duration<double>(each.latency).count(), plan::kMostWindowBytes);
  options.warm_up_calls = 12;
  return options;
}

SimulationResult run(const Case& each, const SimulationOptions& options) {
  engine::ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.count = each.bytes / sizeof(float);
  call.type = DataType::float32;
  call.algorithm = each.algorithm;
  return simulate(options, call).take_or_throw();
}

double seconds_of(const SimulationResult& result) { return std::chrono::duration<double>(result.time).count(); }

// What scatter-reduce and all-gather put on a line, and three latencies.
double bound(const Case& each) {
  return 2.0 * (each.hosts - 1) / each.hosts * static_cast<double>(each.bytes) / each.rate +
         3 * std::chrono::duration<double>(each.latency).count();
}

TEST(Queues, sums_take_so_many_times_what_the_lines_allow) {
  constexpr auto kCubic = CongestionControl::cubic, kBbr = CongestionControl::bbr;
  constexpr auto kRing = Algorithm::ring, kSra = Algorithm::sra;
  const Case cases[] = {
      {2, 200 * kMbit, milliseconds(10), 4 * kMiB, 500'000, kRing, kCubic, 1.03},
      {2, 200 * kMbit, milliseconds(10), 4 * kMiB, 500'000, kRing, kBbr, 1.03},
      {8, 200 * kMbit, milliseconds(10), 4 * kMiB, 500'000, kRing, kBbr, 1.07},
      {8, 200 * kMbit, milliseconds(10), 4 * kMiB, 500'000, kSra, kCubic, 1.11},
      {8, 200 * kMbit, milliseconds(10), 16 * kMiB, 500'000, kRing, kCubic, 1.73},
      {8, 200 * kMbit, milliseconds(10), 16 * kMiB, 500'000, kRing, kBbr, 1.11},
      {8, 200 * kMbit, milliseconds(10), 16 * kMiB, 500'000, kSra, kCubic, 1.19},
      {4, 50 * kMbit, milliseconds(40), 4 * kMiB, 250'000, kRing, kBbr, 1.28},
      {8, 100 * kMbit, milliseconds(1), 4 * kMiB, 64 * 1024, kRing, kBbr, 1.17},
      {8, 100 * kMbit, milliseconds(1), 4 * kMiB, 64 * 1024, kSra, kCubic, 1.3},
  };
  for (const Case& each : cases) {
    const SimulationResult result = run(each, options_of(each));
    const double multiple = seconds_of(result) / bound(each);
    SCOPED_TRACE(fmt::format("{} hosts, {} bytes, {}", each.hosts, each.bytes, to_string(each.algorithm)));
    EXPECT_LE(multiple, each.most);
    EXPECT_GE(multiple, 0.95);
    const DelayBreakdown& delays = result.delays;
    EXPECT_EQ(delays.wire + delays.latency + delays.working + delays.waiting, result.time);
  }
}

constexpr Case kShort = {4, 200 * kMbit, milliseconds(10), kMiB, 32 * 1024, Algorithm::sra, CongestionControl::bbr, 0};

TEST(Queues, a_short_queue_drops_and_an_endless_one_does_not) {
  SimulationOptions options = options_of(kShort);
  const SimulationResult dropped = run(kShort, options);
  EXPECT_GT(dropped.packets.dropped_up, 10u);
  EXPECT_GE(dropped.packets.sent_again, dropped.packets.dropped_up);
  options.links.up_queue_bytes = options.links.down_queue_bytes = 0;
  const SimulationResult endless = run(kShort, options);
  EXPECT_EQ(endless.packets.sent, 0u);
  EXPECT_EQ(endless.wire_bytes, dropped.wire_bytes);
  EXPECT_LT(endless.time, dropped.time);
}

TEST(Queues, a_warm_call_is_faster_than_a_cold_one_and_counts_alone) {
  Case each = kShort;
  each.queue_bytes = 500'000;
  SimulationOptions options = options_of(each);
  const SimulationResult warm = run(each, options);
  options.warm_up_calls = 0;
  const SimulationResult cold = run(each, options);
  EXPECT_LT(warm.time, cold.time);
  EXPECT_EQ(warm.frames, cold.frames);
  EXPECT_EQ(warm.wire_bytes, cold.wire_bytes);
}

TEST(Queues, a_seed_repeats_itself_packet_by_packet) {
  SimulationOptions options = options_of(kShort);
  options.links.loss = 0.01;
  const auto again = [&](std::uint64_t seed) {
    options.seed = seed;
    const SimulationResult result = run(kShort, options);
    return std::tuple(result.time, result.packets.sent, result.packets.lost, result.packets.timeouts);
  };
  EXPECT_EQ(again(1), again(1));
  EXPECT_NE(again(1), again(2));
}

// Frames that are lost come in the end, so that every rank ends; one that dies is seen as ever.
TEST(Queues, ranks_end_whatever_is_lost_and_a_dead_one_fails_the_others) {
  SimulationOptions options = options_of(kShort);
  options.links.loss = 0.1;
  options.links.connections = 3;
  EXPECT_EQ(run(kShort, options).failed_ranks, 0);
  options.losses = {{3, milliseconds(5)}};
  EXPECT_EQ(run(kShort, options).failed_ranks, 3);
}

}  // namespace
}  // namespace qccl::sim
