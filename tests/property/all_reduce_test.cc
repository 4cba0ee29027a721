// Uncompressed all_reduce: the reduction in rank order, bit for bit, on every rank, for any arrival
// order, slice size, algorithm, alignment and input.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::one_shot, Algorithm::sra, Algorithm::pairwise};

// Networks that deliver frames in different orders, cut into different slices.
std::vector<std::unique_ptr<SimWorld>> make_networks(int world) {
  std::vector<std::unique_ptr<SimWorld>> networks;
  networks.push_back(std::make_unique<SimWorld>(world, SimOptions{.seed = 1, .slice_bytes = 4096}));
  networks.push_back(std::make_unique<SimWorld>(
      world,
      SimOptions{.seed = 2,
                 .link = {.latency = std::chrono::microseconds(1), .jitter = std::chrono::milliseconds(1), .slots = 3},
                 .slice_bytes = 65536}));
  networks.push_back(std::make_unique<SimWorld>(world, SimOptions{.seed = 3, .slice_bytes = 256 * 1024}));
  return networks;
}

class AllReduce : public ::testing::TestWithParam<int> {
 protected:
  // Runs the call on every network; each rank must hold the reference's bits. `round` varies
  // placement and data.
  void expect_reference(DataType type, ReduceOp op, std::uint64_t count, Pattern pattern, std::uint64_t round) {
    const auto inputs = make_inputs(pattern, type, count, world_, 17 * round + count);
    for (const Algorithm algorithm : kAlgorithms) {
      const auto call = make_call(Collective::all_reduce, count, type, world_, {.op = op, .algorithm = algorithm});
      auto expected = expected_outputs(call, inputs);
      for (std::size_t i = 0; i < networks_.size(); ++i) {
        const Placement placement{.in_place = (round + i) % 2 == 0,
                                  .input_offset = round % 3 == 0 ? 0 : round % 8,
                                  .output_offset = round % 5};
        SCOPED_TRACE(fmt::format("world {} {} pattern {} network {} round {}", world_, call.describe(),
                                 to_string(pattern), i, round));
        CollectiveResult outcome = run_collective(*networks_[i], call, inputs, placement);
        ASSERT_EQ(outcome.problem, "");
        // One rank computes nothing: a NaN may keep its payload.
        if (world_ == 1) outcome.outputs[0] = with_plain_nans(type, outcome.outputs[0]);
        if (world_ == 1) expected[0] = with_plain_nans(type, expected[0]);
        ASSERT_EQ(difference(type, outcome.outputs, expected), "");
      }
    }
  }

  const int world_ = GetParam();
  std::vector<std::unique_ptr<SimWorld>> networks_ = make_networks(GetParam());
};

TEST_P(AllReduce, equals_the_reduction_in_rank_order_bit_for_bit) {
  std::uint64_t round = 0;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (!supports(type, op)) continue;
      for (const std::uint64_t count : {0, 1, 7, 1023}) {
        const int patterns = is_floating(type) ? 3 : 1;  // integers are random with every pattern
        for (int pattern = 0; pattern < patterns; ++pattern, ++round) {
          ASSERT_NO_FATAL_FAILURE(expect_reference(type, op, count, kPatterns[round % kPatterns.size()], round));
        }
      }
    }
  }
}

TEST_P(AllReduce, keeps_hostile_values_in_every_floating_type) {
  std::uint64_t round = 1000;
  for (const DataType type : kTypes) {
    if (!is_floating(type)) continue;
    for (const Pattern pattern : kPatterns) {
      for (const ReduceOp op : kOps) {
        if (!supports(type, op)) continue;
        ASSERT_NO_FATAL_FAILURE(expect_reference(type, op, 300, pattern, ++round));
      }
    }
  }
}

TEST_P(AllReduce, of_many_slices_equals_the_reduction_in_rank_order) {
  std::uint64_t round = 2000;
  for (const DataType type : kTypes) {
    ASSERT_NO_FATAL_FAILURE(expect_reference(type, ReduceOp::sum, 40009, Pattern::normal, ++round));
    ASSERT_NO_FATAL_FAILURE(expect_reference(type, ReduceOp::max, 8192, Pattern::normal, ++round));
    const ReduceOp own = is_floating(type) ? ReduceOp::premul_sum : ReduceOp::bit_xor;
    ASSERT_NO_FATAL_FAILURE(expect_reference(type, own, 20011, Pattern::normal, ++round));
  }
}

TEST_P(AllReduce, is_within_the_rounding_of_an_exact_sum) {
  for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
      for (const Pattern pattern : kPatterns) {
        const auto call = make_call(Collective::all_reduce, 2000, type, world_, {.op = op});
        const auto inputs = make_inputs(pattern, type, 2000, world_, 5);
        const CollectiveResult outcome = run_collective(*networks_[0], call, inputs);
        ASSERT_EQ(outcome.problem, "");
        ASSERT_EQ(check_bound(call, inputs, outcome.outputs), "") << call.describe() << " " << to_string(pattern);
      }
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, AllReduce, ::testing::Range(1, 10), world_name);

class LargeAllReduce : public AllReduce {};

TEST_P(LargeAllReduce, of_more_than_a_million_elements_equals_the_reduction_in_rank_order) {
  const std::uint64_t count = (1 << 20) + 3;
  const DataType type = world_ == 3 ? DataType::bfloat16 : DataType::float32;
  ASSERT_NO_FATAL_FAILURE(expect_reference(type, ReduceOp::sum, count, Pattern::normal, 4));
}

INSTANTIATE_TEST_SUITE_P(Simulated, LargeAllReduce, ::testing::Values(2, 3, 5), world_name);

}  // namespace
}  // namespace qccl::testing
