// Owners' shares of an all_reduce: the same bits whatever they are, and the time that unequal lines allow.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/cost/shares.h"
#include "plan/plan.h"
#include "sim/simulation.h"
#include "support/reference.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using Shares = std::vector<int>;

engine::ResolvedCall with_shares(engine::ResolvedCall call, const Shares& shares) {
  call.shares.assign(shares.begin(), shares.end());
  return call;
}

engine::ResolvedCall sum_of(std::uint64_t count, int world, CallOptions options = {},
                            DataType type = DataType::float32) {
  options.algorithm = Algorithm::sra;
  return make_call(Collective::all_reduce, count, type, world, options);
}

// Four ranks; none owns everything of any count here but for the last.
const Shares kShares[] = {{133, 133, 0, 133}, {1, 2, 3, 4}, {0, 0, 200, 200}, {400, 1, 1, 1}, {0, 0, 0, 1}};
constexpr int kWorld = 4;

TEST(Shares, of_owners_change_no_bit_of_an_uncompressed_sum) {
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64, DataType::int32}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::premul_sum, ReduceOp::max}) {
      for (const std::uint64_t count : {1u, 63u, 65u, 1000u, 100'000u}) {
        if (!supports(type, op)) continue;
        const engine::ResolvedCall call = sum_of(count, kWorld, {.op = op}, type);
        const auto inputs = make_inputs(Pattern::normal, type, count, kWorld, count);
        SimWorld world(kWorld, {.slice_bytes = 16384});
        const CollectiveResult equal = run_collective(world, call, inputs);
        ASSERT_EQ(equal.problem, "");
        for (const Shares& shares : kShares) {
          for (const bool in_place : {false, true}) {
            const auto result = run_collective(world, with_shares(call, shares), inputs, {.in_place = in_place});
            ASSERT_EQ(result.problem, "");
            ASSERT_EQ(difference(type, result.outputs, equal.outputs), "")
                << with_shares(call, shares).describe() << (in_place ? ", in place" : "");
          }
        }
      }
    }
  }
}

TEST(Shares, of_compressed_sums_keep_the_bound_and_all_ranks_the_same_bits) {
  for (const Compression& compression : {minmax({.bits = 4, .bucket_size = 100}), minmax({.bits = 8}), cast()}) {
    for (const std::uint64_t count : {70u, 5000u, 50'000u}) {
      const engine::ResolvedCall call = sum_of(count, kWorld, {.compression = compression});
      const auto inputs = make_inputs(Pattern::normal, DataType::float32, count, kWorld, count);
      SimWorld world(kWorld, {.slice_bytes = 16384});
      for (const Shares& shares : kShares) {
        const auto result = run_collective(world, with_shares(call, shares), inputs);
        ASSERT_EQ(result.problem, "");
        for (const ByteVector& output : result.outputs) ASSERT_EQ(output, result.outputs[0]);
        ASSERT_EQ(check_bound(with_shares(call, shares), inputs, result.outputs), "")
            << with_shares(call, shares).describe();
      }
    }
  }
}

// Residuals belong to elements, not to owners: what one call leaves out comes with the next, whoever owns it then.
TEST(Shares, that_change_between_calls_with_error_feedback_lose_nothing) {
  constexpr std::uint64_t kCount = 5000;
  std::vector<ErrorFeedback> states;
  for (int rank = 0; rank < kWorld; ++rank) states.emplace_back(kCount);
  SimWorld world(kWorld, {.slice_bytes = 4096, .feedback = states});
  const CallOptions options{.compression = minmax({.bits = 2, .bucket_size = 100}), .error_feedback = states[0]};
  std::vector<long double> balance(kCount);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto call = with_shares(sum_of(kCount, kWorld, options), kShares[step % std::size(kShares)]);
    const auto inputs = make_inputs(Pattern::normal, DataType::float32, kCount, kWorld, step + 1);
    const auto result = run_collective(world, call, inputs);
    ASSERT_EQ(result.problem, "");
    for (std::size_t i = 0; i < kCount; ++i) {
      for (const ByteVector& input : inputs) balance[i] += element(DataType::float32, input, i);
      balance[i] -= element(DataType::float32, result.outputs[0], i);
    }
  }
  long double most = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    for (const ErrorFeedback& state : states) balance[i] -= state.residual()[i];
    most = std::max(most, std::fabs(balance[i]));
  }
  EXPECT_LT(most, 1e-3L);
}

TEST(Shares, are_a_part_of_the_call_that_ranks_compare) {
  const engine::ResolvedCall equal = sum_of(1000, kWorld);
  const engine::ResolvedCall unequal = with_shares(equal, {133, 133, 0, 133});
  EXPECT_NE(equal.fingerprint(), unequal.fingerprint());
  EXPECT_NE(unequal.fingerprint(), with_shares(equal, {133, 133, 133, 0}).fingerprint());
  EXPECT_EQ(equal.describe().find("shares"), std::string::npos);
  EXPECT_NE(unequal.describe().find(", shares=[133 133 0 133]"), std::string::npos) << unequal.describe();
}

// ---- time

struct Hosts {
  int count = 8;
  std::vector<std::pair<int, double>> slow{};  // (host, factor)
  Compression compression{};
};

constexpr double kRate = 125e6;
constexpr std::chrono::milliseconds kLatency{5};

double simulated_seconds(const Hosts& hosts, const Shares& shares) {
  sim::SimulationOptions options;
  options.ranks = hosts.count;
  options.links.bytes_per_second = options.links.ingress_bytes_per_second = kRate;
  for (const auto& [host, factor] : hosts.slow) options.links.slow_hosts.emplace_back(host, kRate / factor);
  options.links.latency = kLatency;
  options.links.slots = SIZE_MAX / 2;
  options.window_bytes = plan::window_of(kRate, 2e-3 * kLatency.count(), plan::kMostWindowBytes);
  const auto call = sum_of(8 << 20, hosts.count, {.compression = hosts.compression});
  return std::chrono::duration<double>(sim::simulate(options, with_shares(call, shares)).take_or_throw().time).count();
}

Shares learned(const Hosts& hosts) {
  plan::HostLines lines;
  for (int host = 0; host < hosts.count; ++host) {
    lines.hosts.push_back(host);
    lines.rates.push_back(kRate);
  }
  for (const auto& [host, factor] : hosts.slow) lines.rates[static_cast<std::size_t>(host)] /= factor;
  return plan::shares_of(lines, {});
}

TEST(Shares, of_slow_hosts_make_the_call_take_what_their_lines_allow) {
  struct Case {
    Hosts hosts;
    double least;  // times what equal lines take
  };
  for (const Compression& compression : {none(), minmax({.bits = 8})}) {
    for (const auto& [hosts, least] :
         {Case{{8, {{3, 2}}, compression}, 8.0 / 7}, Case{{4, {{0, 2}}, compression}, 4.0 / 3},
          Case{{4, {{1, 2}, {2, 2}}, compression}, 4.0 / 3}, Case{{8, {{7, 4}}, compression}, 16.0 / 7}}) {
      const double fast = simulated_seconds({hosts.count, {}, compression}, {});
      SCOPED_TRACE(fmt::format("{} hosts, {}", hosts.count, fmt::join(learned(hosts), " ")));
      EXPECT_LE(simulated_seconds(hosts, learned(hosts)), 1.15 * least * fast);
      EXPECT_GE(simulated_seconds(hosts, {}), 0.85 * hosts.slow[0].second * fast);
    }
  }
}

}  // namespace
}  // namespace qccl::testing
