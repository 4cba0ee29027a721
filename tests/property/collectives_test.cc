// reduce_scatter, all_gather, broadcast and barrier, uncompressed: the expected bytes on every rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  void expect_reference(const engine::ResolvedCall& call, std::uint64_t round) {
    const auto inputs =
        make_inputs(kPatterns[round % kPatterns.size()], call.type, most_input_elements(call, world_), world_, round);
    auto expected = expected_outputs(call, inputs);
    for (int i = 0; i < 2; ++i) {
      const Placement placement{.in_place = i == 0, .input_offset = round % 9, .output_offset = round % 4};
      SCOPED_TRACE(fmt::format("world {} {} round {} network {}", world_, call.describe(), round, i));
      CollectiveResult outcome = run_collective(i == 0 ? fine_ : coarse_, call, inputs, placement);
      ASSERT_EQ(outcome.problem, "");
      // One rank computes nothing: a NaN may keep its payload.
      if (world_ == 1) outcome.outputs[0] = with_plain_nans(call.type, outcome.outputs[0]);
      if (world_ == 1) expected[0] = with_plain_nans(call.type, expected[0]);
      ASSERT_EQ(difference(call.type, outcome.outputs, expected), "");
    }
  }

  const int world_ = GetParam();
  SimWorld fine_{world_, {.seed = 21, .slice_bytes = 4096}};
  SimWorld coarse_{
      world_,
      {.seed = 22,
       .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2}}};
};

TEST_P(Collectives, reduce_scatter_gives_each_rank_its_part_of_the_reduction) {
  std::uint64_t round = 0;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (!supports(type, op)) continue;
      for (const std::uint64_t count : {0, 1, 7, 1023}) {
        const auto call = make_call(Collective::reduce_scatter, count, type, world_, {.op = op});
        ASSERT_NO_FATAL_FAILURE(expect_reference(call, ++round));
      }
    }
  }
}

TEST_P(Collectives, all_gather_gives_every_rank_all_inputs_in_rank_order) {
  std::uint64_t round = 100;
  for (const DataType type : kTypes) {
    for (const std::uint64_t count : {0, 1, 7, 1023, 9001}) {
      ASSERT_NO_FATAL_FAILURE(expect_reference(make_call(Collective::all_gather, count, type, world_), ++round));
    }
  }
}

TEST_P(Collectives, broadcast_gives_every_rank_the_buffer_of_every_root) {
  std::uint64_t round = 200;
  for (int root = 0; root < world_; ++root) {
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::sra}) {
      for (const std::uint64_t count : {0, 1, 7, 1023, 20011}) {
        const DataType type = kTypes[round % std::size(kTypes)];
        const auto call = make_call(Collective::broadcast, count, type, world_, {.root = root, .algorithm = algorithm});
        ASSERT_NO_FATAL_FAILURE(expect_reference(call, ++round));
      }
    }
  }
}

TEST_P(Collectives, barrier_ends_nowhere_before_everybody_has_come) {
  const auto call = make_call(Collective::barrier, 0, DataType::uint8, world_);
  for (int late = 0; late < world_; ++late) {
    std::vector<SimWork> works;
    for (int rank = 0; rank < world_; ++rank) {
      if (rank != late) works.push_back(fine_.post(rank, call, {nullptr, nullptr}));
    }
    fine_.run_for(std::chrono::seconds(1));
    for (const auto& work : works) ASSERT_FALSE(work->done()) << "rank " << late << " had not come";
    works.push_back(fine_.post(late, call, {nullptr, nullptr}));
    ASSERT_TRUE(fine_.run(works));
    for (const auto& work : works) ASSERT_FALSE(work->failure()) << work->failure()->message;
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, Collectives, ::testing::Range(1, 10), world_name);

TEST(LargeCollectives, of_more_than_a_million_bytes_give_the_expected_bytes) {
  SimWorld world(4, {.seed = 5, .slice_bytes = 65536});
  for (const auto collective : {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
    const std::uint64_t count = collective == Collective::broadcast ? 500009 : 200003;
    const auto call =
        make_call(collective, count, DataType::float32, 4, {.root = 2 * (collective == Collective::broadcast)});
    const auto inputs = make_inputs(Pattern::normal, call.type, most_input_elements(call, 4), 4, 8);
    const CollectiveResult outcome = run_collective(world, call, inputs, {.in_place = true, .input_offset = 1});
    ASSERT_EQ(outcome.problem, "");
    EXPECT_EQ(difference(call.type, outcome.outputs, expected_outputs(call, inputs)), "") << call.describe();
  }
}

TEST(Operations, that_a_type_does_not_have_are_refused_with_what_it_has) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const auto collective : {Collective::all_reduce, Collective::reduce_scatter}) {
        const auto call = resolve_call(collective, 10, type, 4, {.op = op});
        ASSERT_EQ(call.ok(), supports(type, op));
        if (call.ok()) continue;
        EXPECT_EQ(call.error().kind, ErrorKind::invalid_argument);
        const std::string list =
            is_floating(type) ? "has sum, avg, min, max, prod, premul_sum" : "has sum, min, max, prod, band, bor, bxor";
        EXPECT_NE(call.error().message.find(fmt::format("{} of {} is not defined", to_string(op), to_string(type))),
                  std::string::npos)
            << call.error().message;
        EXPECT_NE(call.error().message.find(fmt::format("{} {}", to_string(type), list)), std::string::npos)
            << call.error().message;
      }
    }
  }
  const auto call = resolve_call(Collective::all_reduce, 10, DataType::int32, 4, {.op = ReduceOp::avg});
  EXPECT_NE(call.error().message.find("use sum and divide"), std::string::npos);
}

}  // namespace
}  // namespace qccl::testing
