// Compressed all_reduce and reduce_scatter: within the codec's stated bound of an exact reduction,
// the same bits on every rank, over networks and slice sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

std::vector<Compression> all_codecs() {
  std::vector<Compression> codecs = {cast(DataType::bfloat16), cast(DataType::float16)};
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
    for (const std::uint32_t bucket_size : {1u, 7u, 64u, 1000u, 1024u, 65536u}) {
      codecs.push_back(minmax({.bits = bits, .bucket_size = bucket_size}));
    }
  }
  return codecs;
}

// Two networks with different arrival orders and slices; results must not depend on the network.
class Compressed : public ::testing::TestWithParam<int> {
 protected:
  // Runs the call on both networks and checks the result against the bound.
  void expect_bounded(const engine::ResolvedCall& call, Pattern pattern, std::uint64_t round) {
    const std::uint64_t elements = most_input_elements(call, world_);
    const auto inputs = make_inputs(pattern, call.type, elements, world_, 31 * round + elements);
    SCOPED_TRACE(fmt::format("world {} {} pattern {} round {}", world_, call.describe(), to_string(pattern), round));
    const Placement placement{.in_place = round % 2 == 0, .input_offset = round % 7, .output_offset = round % 5};
    const CollectiveResult first = run_collective(fine_, call, inputs, placement);
    ASSERT_EQ(first.problem, "");
    if (call.collective == Collective::all_reduce) {
      const std::vector<ByteVector> same(inputs.size(), first.outputs[0]);
      ASSERT_EQ(difference(call.type, first.outputs, same), "") << "ranks differ";
    }
    ASSERT_EQ(check_bound(call, inputs, first.outputs), "");
    const CollectiveResult second = run_collective(coarse_, call, inputs);
    ASSERT_EQ(second.problem, "");
    ASSERT_EQ(difference(call.type, second.outputs, first.outputs), "") << "networks differ";
  }

  const int world_ = GetParam();
  SimWorld fine_{world_, {.seed = 11, .slice_bytes = 4096}};
  SimWorld coarse_{
      world_,
      {.seed = 12,
       .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2},
       .slice_bytes = 256 * 1024}};
};

CallOptions options_of(const Compression& codec, std::uint64_t round) {
  constexpr ReduceOp kSums[] = {ReduceOp::sum, ReduceOp::premul_sum, ReduceOp::avg};
  return {
      .op = kSums[round % 3], .compression = codec, .algorithm = round % 4 == 3 ? Algorithm::one_shot : Algorithm::sra};
}

TEST_P(Compressed, all_reduce_is_within_the_stated_bound_for_every_codec) {
  const DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float32, DataType::float16};
  std::uint64_t round = static_cast<std::uint64_t>(world_);
  for (const Compression& codec : all_codecs()) {
    for (const std::uint64_t count : {0, 1, 7, 1023, 3000}) {
      for (int i = 0; i < 3; ++i, ++round) {
        const DataType type = types[round % 4];
        const Pattern pattern = kPatterns[round % kPatterns.size()];
        const auto call = make_call(Collective::all_reduce, count, type, world_, options_of(codec, round));
        ASSERT_NO_FATAL_FAILURE(expect_bounded(call, pattern, round));
      }
    }
  }
}

TEST_P(Compressed, all_reduce_is_within_the_stated_bound_for_every_pattern) {
  std::uint64_t round = 0;
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
    for (const Pattern pattern : kPatterns) {
      const auto codec = minmax({.bits = bits, .bucket_size = 64});
      const auto call = make_call(Collective::all_reduce, 500, DataType::float32, world_, options_of(codec, round));
      ASSERT_NO_FATAL_FAILURE(expect_bounded(call, pattern, ++round));
    }
  }
}

TEST_P(Compressed, reduce_scatter_is_within_the_stated_bound_for_every_codec) {
  std::uint64_t round = static_cast<std::uint64_t>(world_);
  for (const Compression& codec : all_codecs()) {
    for (const std::uint64_t count : {0, 1, 7, 700}) {
      const DataType type = round % 4 == 0 ? DataType::bfloat16 : DataType::float32;
      const auto call = make_call(Collective::reduce_scatter, count, type, world_,
                                  {.op = options_of(codec, round).op, .compression = codec});
      ASSERT_NO_FATAL_FAILURE(expect_bounded(call, kPatterns[round % kPatterns.size()], round));
      ++round;
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, Compressed, ::testing::Range(1, 10), world_name);

class LargeCompressed : public Compressed {};

TEST_P(LargeCompressed, all_reduce_of_many_slices_is_within_the_stated_bound) {
  const std::uint64_t count = (1 << 18) + 3;
  for (const Compression& codec : {minmax({.bits = 4, .bucket_size = 1000}), minmax({.bits = 8, .bucket_size = 65536}),
                                   minmax({.bits = 3, .bucket_size = 65535}), cast()}) {
    const auto call = make_call(Collective::all_reduce, count, DataType::float32, world_, {.compression = codec});
    ASSERT_NO_FATAL_FAILURE(expect_bounded(call, Pattern::outlier, 9));
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, LargeCompressed, ::testing::Values(2, 4), world_name);

}  // namespace
}  // namespace qccl::testing
