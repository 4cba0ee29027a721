// Compression in every algorithm: reductions that round at every hop stay within the bound for that,
// and moved data arrives as decode(encode(x)), the owner's own copy included.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/algorithms/registry.h"
#include "support/codec_contract.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

const std::vector<Compression> kCodecs = {minmax({.bits = 4, .bucket_size = 64}),
                                          minmax({.bits = 8}),
                                          minmax({.bits = 1, .bucket_size = 7}),
                                          minmax({.bits = 3, .bucket_size = 1000}),
                                          minmax({.bits = 16, .bucket_size = 64}),
                                          cast(DataType::bfloat16),
                                          cast(DataType::float16)};

// kCodecs and one of each other codec of the library.
std::vector<Compression> codecs_of_reductions() {
  std::vector<Compression> codecs = kCodecs;
  for (const Compression& compression : default_compressions()) {
    const auto is_same = [&](const Compression& known) { return known.codec == compression.codec; };
    if (std::none_of(kCodecs.begin(), kCodecs.end(), is_same)) codecs.push_back(compression);
  }
  return codecs;
}

constexpr DataType kTypes[] = {DataType::float32, DataType::bfloat16, DataType::float16};

std::vector<int> hosts_of_two(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 2);
  return hosts;
}

class CompressedAlgorithms : public ::testing::TestWithParam<int> {
 protected:
  // Two networks with different arrival orders and slices must give the same bytes.
  std::vector<ByteVector> run(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                              std::uint64_t round) {
    const Placement placement{.in_place = round % 2 == 0, .input_offset = round % 7, .output_offset = round % 5};
    const CollectiveResult first = run_collective(fine_, call, inputs, placement);
    EXPECT_EQ(first.problem, "");
    const CollectiveResult second = run_collective(coarse_, call, inputs);
    EXPECT_EQ(second.problem, "");
    EXPECT_EQ(difference(call.type, second.outputs, first.outputs), "") << "networks differ";
    return first.outputs;
  }

  const int world_ = GetParam();
  SimWorld fine_{world_, {.seed = 11, .slice_bytes = 4096, .hosts = hosts_of_two(world_)}};
  SimWorld coarse_{
      world_,
      {.seed = 12,
       .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2},
       .slice_bytes = 256 * 1024,
       .hosts = hosts_of_two(world_)}};
};

TEST_P(CompressedAlgorithms, of_reductions_are_within_their_stated_bound_on_all_ranks_alike) {
  std::uint64_t round = 0;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const Compression& codec : codecs_of_reductions()) {
        for (const Pattern pattern : kPatterns) {
          ++round;
          const CallOptions options{.op = round % 3 == 2 ? ReduceOp::avg : ReduceOp::sum,
                                    .root = is_rooted(collective) ? static_cast<int>(round) % world_ : 0,
                                    .compression = codec,
                                    .algorithm = algorithm};
          auto call = make_call(collective, 1500, kTypes[round % std::size(kTypes)], world_, options);
          SCOPED_TRACE(fmt::format("world {} {} {} round {}", world_, call.describe(), to_string(pattern), round));
          const auto inputs = make_inputs(pattern, call.type, most_input_elements(call, world_), world_, round);
          const auto outputs = run(call, inputs, round);
          if (plan::entry_of(algorithm).uses_hosts) {
            const auto hosts = hosts_of_two(world_);
            call.hosts.assign(hosts.begin(), hosts.end());
          }
          ASSERT_EQ(check_bound(call, inputs, outputs), "");
          if (collective != Collective::all_reduce) continue;
          ASSERT_EQ(difference(call.type, outputs, std::vector<ByteVector>(outputs.size(), outputs[0])), "");
        }
      }
    }
  }
}

TEST_P(CompressedAlgorithms, that_move_data_bring_what_the_codec_makes_of_it_to_all_ranks_alike) {
  std::uint64_t round = 0;
  for (const Collective collective : {Collective::broadcast, Collective::all_gather, Collective::all_to_all}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const Compression& codec : kCodecs) {
        for (const std::uint64_t count : {0, 1, 700, 5003}) {
          ++round;
          const CallOptions options{.root = is_rooted(collective) ? static_cast<int>(round) % world_ : 0,
                                    .compression = codec,
                                    .algorithm = algorithm};
          const auto call = make_call(collective, count, kTypes[round % std::size(kTypes)], world_, options);
          SCOPED_TRACE(fmt::format("world {} {} round {}", world_, call.describe(), round));
          const auto inputs = make_inputs(Pattern::normal, call.type, most_input_elements(call, world_), world_, round);
          ASSERT_EQ(difference(call.type, run(call, inputs, round), expected_decoded(call, inputs)), "");
        }
      }
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, CompressedAlgorithms, ::testing::Range(1, 10), world_name);

TEST(ChoiceOfCodec, for_what_only_moves_is_the_callers_alone) {
  comm::GroupDefaults group;
  group.compression = minmax({.bits = 4});
  for (const Collective collective : {Collective::broadcast, Collective::all_gather, Collective::all_to_all,
                                      Collective::gather, Collective::scatter}) {
    const auto usual = TestGroup{4, group}.resolve(collective, 1 << 20, DataType::float32);
    EXPECT_EQ(usual.value().compression, none()) << to_string(collective);
    const auto asked =
        TestGroup{4, group}.resolve(collective, 1 << 20, DataType::float32, {.compression = minmax({.bits = 8})});
    if (collective == Collective::gather || collective == Collective::scatter) {
      ASSERT_FALSE(asked.ok());
      EXPECT_EQ(asked.error().kind, ErrorKind::unsupported);
    } else {
      EXPECT_EQ(asked.value().compression, minmax({.bits = 8})) << to_string(collective);
    }
    const auto integers =
        TestGroup{4, group}.resolve(collective, 1 << 20, DataType::int32, {.compression = minmax({.bits = 8})});
    ASSERT_FALSE(integers.ok());
    EXPECT_EQ(integers.error().kind, ErrorKind::unsupported);
  }
  const auto reduce = TestGroup{4, group}.resolve(Collective::reduce, 1 << 20, DataType::float32);
  EXPECT_EQ(reduce.value().compression, group.compression);
}

}  // namespace
}  // namespace qccl::testing
