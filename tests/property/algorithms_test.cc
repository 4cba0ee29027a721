// Every algorithm of every collective, uncompressed: the expected bytes on every rank, for every
// root, in and out of place. Values are chosen so that sums and products are exact in any order.
// Results that depend on the order of addition must be within their bound and the same on all ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/algorithms/registry.h"
#include "support/reference.h"
#include "support/sim_call.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

constexpr Collective kCollectives[] = {Collective::all_reduce,     Collective::reduce,    Collective::broadcast,
                                       Collective::reduce_scatter, Collective::gather,    Collective::all_gather,
                                       Collective::scatter,        Collective::all_to_all};

// Three ranks on a host; the last host may have fewer.
std::vector<int> hosts_of_three(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 3);
  return hosts;
}

class Algorithms : public ::testing::TestWithParam<int> {
 protected:
  void expect_reference(const std::vector<engine::ResolvedCall>& calls, std::uint64_t round) {
    const engine::ResolvedCall& call = calls[0];
    std::uint64_t most = 0;
    for (const engine::ResolvedCall& each : calls) most = std::max(most, most_input_elements(each, world_));
    const auto inputs = make_inputs(Pattern::whole, call.type, most, world_, round);
    const auto expected = expected_outputs(calls, inputs);
    for (const bool in_place : {true, false}) {
      SCOPED_TRACE(fmt::format("world {} {} round {}{}", world_, call.describe(), round, in_place ? " in place" : ""));
      const Placement placement{.in_place = in_place, .input_offset = round % 9, .output_offset = round % 4};
      SimWorld& job = round % 3 == 0 ? distant_ : in_place ? fine_ : coarse_;
      const CollectiveResult outcome = run_collective(job, calls, inputs, placement);
      ASSERT_EQ(outcome.problem, "");
      ASSERT_EQ(difference(call.type, outcome.outputs, expected), "");
    }
  }
  void expect_reference(const engine::ResolvedCall& call, std::uint64_t round) {
    expect_reference(std::vector<engine::ResolvedCall>(static_cast<std::size_t>(world_), call), round);
  }

  // Sums in any order, the same on all ranks.
  void expect_within_rounding(engine::ResolvedCall call, Pattern pattern, std::uint64_t seed) {
    SCOPED_TRACE(fmt::format("world {} {} {}", world_, call.describe(), to_string(pattern)));
    const auto inputs = make_inputs(pattern, call.type, most_input_elements(call, world_), world_, seed);
    const CollectiveResult outcome = run_collective(fine_, call, inputs);
    ASSERT_EQ(outcome.problem, "");
    if (plan::entry_of(call.algorithm).uses_hosts) {
      const auto hosts = hosts_of_three(world_);
      call.hosts.assign(hosts.begin(), hosts.end());
    }
    ASSERT_EQ(check_bound(call, inputs, outcome.outputs), "");
    if (call.collective != Collective::all_reduce) return;
    const std::vector<ByteVector> same(inputs.size(), outcome.outputs[0]);
    ASSERT_EQ(difference(call.type, outcome.outputs, same), "") << "ranks differ";
  }

  const int world_ = GetParam();
  SimWorld fine_{world_, {.seed = 31, .slice_bytes = 4096, .hosts = hosts_of_three(world_)}};
  SimWorld coarse_{
      world_,
      {.seed = 32,
       .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2},
       .hosts = hosts_of_three(world_)}};
  SimWorld distant_{world_,
                    {.seed = 33,
                     .link = {.latency = std::chrono::milliseconds(50), .jitter = std::chrono::milliseconds(2)},
                     .slice_bytes = 4096,
                     .window_bytes = std::uint64_t{1} << 20,
                     .hosts = hosts_of_three(world_)}};
};

TEST_P(Algorithms, give_the_expected_bytes_for_every_root) {
  std::uint64_t round = 0;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (int root = 0; root < (is_rooted(collective) ? world_ : 1); ++root) {
        for (const std::uint64_t count : {0, 1, 7, 1023, 9001}) {
          const DataType type = kTypes[++round % std::size(kTypes)];
          const auto call = make_call(collective, count, type, world_, {.root = root, .algorithm = algorithm});
          ASSERT_NO_FATAL_FAILURE(expect_reference(call, round));
        }
      }
    }
  }
}

TEST_P(Algorithms, reduce_every_type_with_every_operation) {
  std::uint64_t round = 1000;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const DataType type : kTypes) {
        for (const ReduceOp op : kOps) {
          if (!supports(type, op)) continue;
          const CallOptions options{.op = op, .root = is_rooted(collective) ? world_ - 1 : 0, .algorithm = algorithm};
          const auto call = make_call(collective, 300, type, world_, options);
          // Factors are not whole numbers, so products are rounded, and the rounding of sums depends on the order.
          const bool in_rank_order = plan::adds_in_rank_order(collective, algorithm);
          if (op == ReduceOp::premul_sum && !in_rank_order) {
            ASSERT_NO_FATAL_FAILURE(expect_within_rounding(call, Pattern::normal, ++round));
          } else {
            ASSERT_NO_FATAL_FAILURE(expect_reference(call, ++round));
          }
        }
      }
    }
  }
}

// Lengths that include zeros, and ranks without any elements.
std::uint64_t ragged(int i, int j) {
  const int product = 37 * i + 411 * j;
  return (i + 2 * j) % 3 == 0 ? 0 : static_cast<std::uint64_t>(product);
}

engine::ResolvedCall counted(Collective collective, std::vector<std::uint64_t> counts, DataType type, int world,
                             const CallOptions& options) {
  return resolve_call(collective, counts, type, world, options).take_or_throw();
}

TEST_P(Algorithms, give_each_rank_as_many_elements_as_its_own_count) {
  std::uint64_t round = 2000;
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::gather, Collective::scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (int shape = 0; shape < 6; ++shape) {
        std::vector<std::uint64_t> counts;
        for (int rank = 0; rank < world_; ++rank) counts.push_back(shape == 5 ? 0 : ragged(rank + shape, shape));
        const CallOptions options{.root = is_rooted(collective) ? shape % world_ : 0, .algorithm = algorithm};
        const auto call = counted(collective, counts, kTypes[++round % std::size(kTypes)], world_, options);
        ASSERT_NO_FATAL_FAILURE(expect_reference(call, round));
      }
    }
  }
}

TEST_P(Algorithms, exchange_as_many_elements_as_each_pair_has) {
  std::uint64_t round = 3000;
  for (const Algorithm algorithm : plan::algorithms_of(Collective::all_to_all)) {
    for (int shape = 0; shape < 4; ++shape) {
      const DataType type = kTypes[++round % std::size(kTypes)];
      std::vector<engine::ResolvedCall> calls;
      for (int rank = 0; rank < world_; ++rank) {
        std::vector<std::uint64_t> counts;
        for (int peer = 0; peer < world_; ++peer) counts.push_back(ragged(rank + shape, peer));
        for (int peer = 0; peer < world_; ++peer) counts.push_back(ragged(peer + shape, rank));
        calls.push_back(counted(Collective::all_to_all, counts, type, world_, {.algorithm = algorithm}));
      }
      ASSERT_NO_FATAL_FAILURE(expect_reference(calls, round));
    }
  }
}

TEST_P(Algorithms, that_add_in_another_order_stay_within_the_rounding_of_it_on_all_ranks_alike) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const DataType type : {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16}) {
        for (const Pattern pattern : kPatterns) {
          const auto call = make_call(collective, 700, type, world_, {.algorithm = algorithm});
          ASSERT_NO_FATAL_FAILURE(expect_within_rounding(call, pattern, 5));
        }
      }
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, Algorithms, ::testing::Range(1, 10), world_name);

// Members in a different order from the ranks, some on one host and some not, and groups that share ranks.
TEST(PermutedGroups, that_overlap_give_the_expected_bytes_by_every_algorithm_at_once) {
  SimWorld world(9, {.seed = 33, .slice_bytes = 4096, .hosts = hosts_of_three(9)});
  const std::vector<SimGroup> groups = {
      {101, {7, 2, 5, 0, 8}}, {102, {4, 3}}, {103, {8, 7, 6, 5, 4, 3, 2, 1, 0}}, {104, {6, 1, 4, 0, 3, 8, 2}}};
  for (const SimGroup& group : groups) world.open_group(group.id, fmt::format("group {}", group.id), group.ranks);
  std::uint64_t round = 0;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      std::deque<SimCall> calls;
      ++round;
      for (const SimGroup& group : groups) {
        const int root = is_rooted(collective) ? static_cast<int>(round) % group.size() : 0;
        const auto call = make_call(collective, 1500, kTypes[round % kTypes.size()], group.size(),
                                    {.root = root, .algorithm = algorithm});
        calls.emplace_back(world, group, call, SimCall::Data{Pattern::whole, round, {}});
        calls.back().post_all();
      }
      ASSERT_TRUE(world.run(works_of(calls)));
      for (const SimCall& call : calls) {
        SCOPED_TRACE(fmt::format("group {} {}", call.group().id, call.call().describe()));
        ASSERT_EQ(call.verify_exact(), "");
      }
    }
  }
}

TEST(LargeAlgorithms, of_more_than_a_million_bytes_give_the_expected_bytes) {
  SimWorld world(5, {.seed = 5, .slice_bytes = 65536, .hosts = {0, 0, 1, 1, 1}});
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      const auto call = make_call(collective, 300007, DataType::int32, 5,
                                  {.root = is_rooted(collective) ? 2 : 0, .algorithm = algorithm});
      const auto inputs = make_inputs(Pattern::normal, call.type, most_input_elements(call, 5), 5, 8);
      const CollectiveResult outcome = run_collective(world, call, inputs, {.in_place = true, .input_offset = 4});
      ASSERT_EQ(outcome.problem, "") << call.describe();
      EXPECT_EQ(difference(call.type, outcome.outputs, expected_outputs(call, inputs)), "") << call.describe();
    }
  }
}

TEST(Choice, of_an_algorithm_that_a_collective_does_not_have_lists_those_that_it_has) {
  const auto call = resolve_call(Collective::broadcast, 10, DataType::float32, 4, {.algorithm = Algorithm::ring});
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(call.error().message, "broadcast has no algorithm ring, only one_shot, sra, binomial, hierarchical");
  // The environment's algorithm applies only to the collectives that support it.
  comm::GroupDefaults environment;
  environment.algorithm = Algorithm::ring;
  const auto other = TestGroup{4, environment}.resolve(Collective::broadcast, 10, DataType::float32);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().algorithm, Algorithm::one_shot);
}

TEST(Choice, of_counts_that_are_not_one_for_each_rank_is_an_error) {
  for (const std::size_t given : {0u, 1u, 3u, 5u, 8u}) {
    for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
      const std::vector<std::uint64_t> counts(given, 1);
      const auto call = resolve_call(collective, counts, DataType::float32, 4);
      ASSERT_EQ(call.ok(), collective == Collective::all_to_all && given == 8) << given;
      EXPECT_TRUE(call.ok() || call.error().kind == ErrorKind::invalid_argument);
    }
  }
}

}  // namespace
}  // namespace qccl::testing
