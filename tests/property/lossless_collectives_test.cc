// With an exact codec, collectives give the same bits as without compression, with every algorithm: moved data arrives
// with every NaN payload, and sums are the uncompressed sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "plan/plan.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::bfloat16, DataType::float16};

std::vector<int> hosts_of_two(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 2);
  return hosts;
}

// Arbitrary bits: with enough elements every pattern of 16 bits, including NaNs with any payload.
std::vector<ByteVector> any_bits(DataType type, std::uint64_t count, int world, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ByteVector> inputs;
  for (int rank = 0; rank < world; ++rank) {
    ByteVector input(count * element_bytes(type));
    for (std::size_t i = 0; i < input.size(); i += 2) {
      const auto bits = static_cast<std::uint16_t>(random() % 4 == 0 ? 0x7F80 | random() : random());
      std::memcpy(&input[i], &bits, sizeof(bits));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

class LosslessCollectives : public ::testing::TestWithParam<int> {
 protected:
  std::vector<ByteVector> run(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                              std::uint64_t round) {
    const Placement placement{.in_place = round % 2 == 0, .input_offset = round % 7, .output_offset = round % 5};
    const CollectiveResult outcome = run_collective(network_, call, inputs, placement);
    EXPECT_EQ(outcome.problem, "");
    return outcome.outputs;
  }

  const int world_ = GetParam();
  SimWorld network_{world_, {.seed = 21, .slice_bytes = 8192, .hosts = hosts_of_two(world_)}};
};

TEST_P(LosslessCollectives, that_move_data_bring_every_bit) {
  std::uint32_t round = 0;
  for (const Collective collective : {Collective::broadcast, Collective::all_gather, Collective::all_to_all}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const DataType type : kTypes) {
        for (const std::uint64_t count : {0, 1, 1023, 7001}) {
          ++round;
          const CallOptions options{.root = is_rooted(collective) ? static_cast<int>(round) % world_ : 0,
                                    .compression = lossless(),
                                    .algorithm = algorithm};
          const auto call = make_call(collective, count, type, world_, options);
          SCOPED_TRACE(fmt::format("world {} {} round {}", world_, call.describe(), round));
          const std::uint64_t elements = most_input_elements(call, world_);
          const auto inputs = round % 3 == 0 ? make_inputs(Pattern::normal, type, elements, world_, round)
                                             : any_bits(type, elements, world_, round);
          ASSERT_EQ(difference(type, run(call, inputs, round), expected_outputs(call, inputs)), "");
        }
      }
    }
  }
}

TEST_P(LosslessCollectives, that_reduce_give_the_bits_that_they_give_uncompressed) {
  std::uint64_t round = 0;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const Pattern pattern : kPatterns) {
        ++round;
        const ReduceOp op = round % 3 == 0 ? ReduceOp::sum : round % 3 == 1 ? ReduceOp::avg : ReduceOp::premul_sum;
        CallOptions options{.op = op,
                            .root = is_rooted(collective) ? static_cast<int>(round) % world_ : 0,
                            .compression = none(),
                            .algorithm = algorithm};
        const DataType type = kTypes[round % std::size(kTypes)];
        options.compression = lossless();
        const auto call = make_call(collective, 2500, type, world_, options);
        options.compression = none();
        options.algorithm = plan::built_for(algorithm, true);
        const auto plain = make_call(collective, 2500, type, world_, options);
        SCOPED_TRACE(fmt::format("world {} {} {} round {}", world_, call.describe(), to_string(pattern), round));
        const auto inputs = make_inputs(pattern, type, most_input_elements(call, world_), world_, round);
        ASSERT_EQ(difference(type, run(call, inputs, round), run(plain, inputs, round)), "");
      }
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, LosslessCollectives, ::testing::Range(1, 7), world_name);

}  // namespace
}  // namespace qccl::testing
