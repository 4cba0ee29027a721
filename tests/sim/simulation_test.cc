#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace qccl::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kElements = 1 << 20;

SimulationOptions cluster(int ranks) {
  SimulationOptions options;
  options.ranks = ranks;
  options.links.bytes_per_second = options.links.ingress_bytes_per_second = 1.25e9;
  options.links.latency = microseconds(50);
  return options;
}

engine::ResolvedCall all_reduce(Algorithm algorithm) {
  engine::ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.count = kElements;
  call.type = DataType::float32;
  call.algorithm = algorithm;
  return call;
}

TEST(Simulation, takes_at_least_what_the_links_allow_and_accounts_for_all_of_it) {
  for (const Algorithm algorithm : {Algorithm::sra, Algorithm::ring, Algorithm::tree}) {
    const SimulationResult outcome = simulate(cluster(4), all_reduce(algorithm)).take_or_throw();
    EXPECT_EQ(outcome.failed_ranks, 0);
    const double least = algorithm == Algorithm::tree ? 1 : 1.5;  // times the data, over each link
    EXPECT_GT(outcome.time, Nanoseconds(static_cast<std::int64_t>(least * 4 * kElements / 1.25)));
    EXPECT_EQ(outcome.delays.wire + outcome.delays.latency + outcome.delays.waiting, outcome.time);
  }
}

Nanoseconds sum(const DelayBreakdown& delays) { return delays.wire + delays.latency + delays.working + delays.waiting; }

// Four ranks on infinitely fast links: in SRA each adds three times a quarter of 4 MiB and copies three other quarters.
TEST(Simulation, of_ranks_that_add_and_copy_takes_their_processors_time) {
  SimulationOptions options;
  options.ranks = 4;
  options.processors.add_rate = 1e9;
  options.processors.copy_rate = 4e9;
  constexpr double quarter = kElements;  // bytes
  const double own = 3 * quarter / 1e9 + 3 * quarter / 4e9;
  const SimulationResult alone = simulate(options, all_reduce(Algorithm::sra)).take_or_throw();
  EXPECT_NEAR(static_cast<double>(alone.time.count()) * 1e-9 / own, 1, 0.02);
  EXPECT_EQ(sum(alone.delays), alone.time);
  // Two ranks share the only core of each of two machines: it has twice the work, and ranks wait for ranks that wait
  // for it.
  options.processors.cores = 1;
  options.processors.hosts_per_machine = 2;
  const SimulationResult shared = simulate(options, all_reduce(Algorithm::sra)).take_or_throw();
  EXPECT_GE(static_cast<double>(shared.time.count()) * 1e-9, 2 * own);
  EXPECT_LT(static_cast<double>(shared.time.count()) * 1e-9, 3 * own);
  EXPECT_EQ(sum(shared.delays), shared.time);
  options.processors.cores = 2;
  EXPECT_EQ(simulate(options, all_reduce(Algorithm::sra)).take_or_throw().time, alone.time);
}

// A rank encodes each slice that it sends once, for any number of receivers.
TEST(Simulation, of_compressed_calls_encodes_and_decodes_as_often_as_the_plan_says) {
  SimulationOptions options;
  options.ranks = 4;
  options.processors.encode_rate = 1e9;
  engine::ResolvedCall call = all_reduce(Algorithm::sra);
  call.compression = minmax({.bits = 4});
  constexpr double quarter = kElements;
  const auto seconds = [&] { return static_cast<double>(simulate(options, call).take_or_throw().time.count()) * 1e-9; };
  EXPECT_NEAR(seconds() / (4 * quarter / 1e9), 1, 0.02);
  call.algorithm = Algorithm::one_shot;
  EXPECT_NEAR(seconds() / (4 * quarter / 1e9), 1, 0.02);
  options.processors = {.decode_rate = 1e9};
  EXPECT_NEAR(seconds() / (4 * 4 * quarter / 1e9), 1, 0.02);
}

TEST(Simulation, repeats_itself_for_a_seed) {
  SimulationOptions options = cluster(8);
  options.links.jitter = microseconds(30);
  const auto run = [&](std::uint64_t seed) {
    options.seed = seed;
    return simulate(options, all_reduce(Algorithm::sra)).take_or_throw().time;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Simulation, of_a_lost_rank_ends_at_once_and_of_a_stopped_one_at_its_deadline) {
  SimulationOptions options = cluster(4);
  const Nanoseconds usual = simulate(options, all_reduce(Algorithm::sra)).take_or_throw().time;
  options.losses = {{3, milliseconds(1)}};
  const SimulationResult lost = simulate(options, all_reduce(Algorithm::sra)).take_or_throw();
  EXPECT_EQ(lost.failed_ranks, 3);
  EXPECT_GT(lost.time, milliseconds(1));
  EXPECT_LT(lost.time, usual);
  EXPECT_NE(lost.failure.find("rank 3 was lost"), std::string::npos) << lost.failure;

  options.losses.clear();
  options.stops = {{2, milliseconds(1)}};
  options.timeout = seconds(2);
  const SimulationResult stopped = simulate(options, all_reduce(Algorithm::sra)).take_or_throw();
  EXPECT_EQ(stopped.failed_ranks, 3);
  EXPECT_GE(stopped.time, seconds(2));
  EXPECT_LT(stopped.time, milliseconds(2100));
  EXPECT_NE(stopped.failure.find("waiting for rank 2 ("), std::string::npos) << stopped.failure;
}

TEST(Simulation, that_would_never_end_says_so) {
  SimulationOptions options = cluster(4);
  options.stops = {{2, milliseconds(1)}};
  const auto waiting = simulate(options, all_reduce(Algorithm::sra));
  ASSERT_FALSE(waiting.ok());
  EXPECT_EQ(waiting.error().kind, ErrorKind::deadline_exceeded);
  EXPECT_EQ(waiting.error().message, "3 ranks wait forever");
}

TEST(Simulation, reports_its_frames_and_gives_up_beyond_the_most_there_may_be) {
  SimulationOptions options = cluster(32);
  std::vector<std::uint64_t> reports;
  options.on_progress = [&](std::uint64_t frames) { reports.push_back(frames); };
  engine::ResolvedCall call = all_reduce(Algorithm::one_shot);
  call.count = 1 << 22;
  const SimulationResult outcome = simulate(options, call).take_or_throw();
  ASSERT_GT(outcome.frames, 100'000u);
  ASSERT_GE(reports.size(), 3u);
  EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
  EXPECT_LE(reports.back(), outcome.frames);
  options.max_frames = 50'000;
  EXPECT_EQ(simulate(options, call).error().kind, ErrorKind::resource_exhausted);
}

}  // namespace
}  // namespace qccl::sim
