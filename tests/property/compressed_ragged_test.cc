// Compression if each rank has a different count, zero included: sums stay within their bound, moved data arrives as
// decode(encode(x)), and neither depends on the network.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/algorithms/registry.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

const std::vector<Compression> kCodecs = {minmax({.bits = 8}),
                                          minmax({.bits = 4, .bucket_size = 64}),
                                          minmax({.bits = 1, .bucket_size = 7}),
                                          minmax({.bits = 3, .bucket_size = 1000}),
                                          cast(DataType::bfloat16),
                                          cast(DataType::float16)};

constexpr DataType kHalvesAndFloats[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr int kShapes = 4;

std::vector<int> hosts_of_two(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 2);
  return hosts;
}

// The count of rank `i`, or its count for `j`: zero, or some buckets and a part of one. In the last shape only rank 0
// has elements.
std::uint64_t ragged(int shape, int i, int j = 0) {
  if (shape == kShapes - 1) return i == 0 ? 1001 : 0;
  return (i + 2 * j + shape) % 3 == 0 ? 0 : static_cast<std::uint64_t>(64 * (i + shape) + 411 * j + i);
}

engine::ResolvedCall counted(Collective collective, std::vector<std::uint64_t> counts, DataType type, int world,
                             const CallOptions& options) {
  return resolve_call(collective, counts, type, world, options).take_or_throw();
}

class RaggedCompressed : public ::testing::TestWithParam<int> {
 protected:
  engine::ResolvedCall counted_once(Collective collective, int shape, DataType type, const CallOptions& options) const {
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < world_; ++rank) counts.push_back(ragged(shape, rank));
    return counted(collective, counts, type, world_, options);
  }

  std::vector<ByteVector> run(const std::vector<engine::ResolvedCall>& calls, const std::vector<ByteVector>& inputs,
                              std::uint64_t round) {
    const Placement placement{.in_place = round % 2 == 0, .input_offset = round % 7, .output_offset = round % 5};
    const CollectiveResult first = run_collective(fine_, calls, inputs, placement);
    EXPECT_EQ(first.problem, "");
    const CollectiveResult second = run_collective(coarse_, calls, inputs);
    EXPECT_EQ(second.problem, "");
    EXPECT_EQ(difference(calls[0].type, second.outputs, first.outputs), "") << "networks differ";
    return first.outputs;
  }

  std::vector<engine::ResolvedCall> by_rank(const engine::ResolvedCall& call) const {
    return std::vector<engine::ResolvedCall>(static_cast<std::size_t>(world_), call);
  }

  std::vector<ByteVector> inputs_of(const std::vector<engine::ResolvedCall>& calls, Pattern pattern,
                                    std::uint64_t seed) const {
    std::uint64_t most = 0;
    for (const engine::ResolvedCall& call : calls) most = std::max(most, most_input_elements(call, world_));
    auto inputs = make_inputs(pattern, calls[0].type, most, world_, seed);
    for (int rank = 0; rank < world_; ++rank) {
      const engine::ResolvedCall& call = calls[static_cast<std::size_t>(rank)];
      inputs[static_cast<std::size_t>(rank)].resize(engine::input_elements(call, world_, rank) *
                                                    element_bytes(call.type));
    }
    return inputs;
  }

  const int world_ = GetParam();
  SimWorld fine_{world_, {.seed = 41, .slice_bytes = 4096, .hosts = hosts_of_two(world_)}};
  SimWorld coarse_{
      world_,
      {.seed = 42,
       .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2},
       .slice_bytes = 256 * 1024,
       .hosts = hosts_of_two(world_)}};
};

TEST_P(RaggedCompressed, reduce_scatter_gives_each_rank_its_part_of_the_sum_within_the_bound) {
  std::uint64_t round = 0;
  for (const Algorithm algorithm : plan::algorithms_of(Collective::reduce_scatter)) {
    for (const Compression& codec : kCodecs) {
      for (int shape = 0; shape < kShapes; ++shape) {
        ++round;
        const CallOptions options{
            .op = round % 3 == 2 ? ReduceOp::avg : ReduceOp::sum, .compression = codec, .algorithm = algorithm};
        auto call = counted_once(Collective::reduce_scatter, shape, kHalvesAndFloats[round % 3], options);
        const Pattern pattern = kPatterns[round % kPatterns.size()];
        SCOPED_TRACE(fmt::format("world {} {} shape {} {}", world_, call.describe(), shape, to_string(pattern)));
        const auto inputs = inputs_of(by_rank(call), pattern, round);
        const auto outputs = run(by_rank(call), inputs, round);
        if (plan::entry_of(algorithm).uses_hosts) {
          const auto hosts = hosts_of_two(world_);
          call.hosts.assign(hosts.begin(), hosts.end());
        }
        ASSERT_EQ(check_bound(call, inputs, outputs), "");
      }
    }
  }
}

TEST_P(RaggedCompressed, all_gather_brings_what_the_codec_makes_of_each_part_to_all_ranks_alike) {
  std::uint64_t round = 0;
  for (const Algorithm algorithm : plan::algorithms_of(Collective::all_gather)) {
    for (const Compression& codec : kCodecs) {
      for (int shape = 0; shape < kShapes; ++shape) {
        ++round;
        const CallOptions options{.compression = codec, .algorithm = algorithm};
        const auto call = counted_once(Collective::all_gather, shape, kHalvesAndFloats[round % 3], options);
        SCOPED_TRACE(fmt::format("world {} {} shape {}", world_, call.describe(), shape));
        const auto inputs = inputs_of(by_rank(call), Pattern::normal, round);
        ASSERT_EQ(difference(call.type, run(by_rank(call), inputs, round), expected_decoded(call, inputs)), "");
      }
    }
  }
}

TEST_P(RaggedCompressed, all_to_all_brings_what_the_codec_makes_of_each_pairs_part) {
  std::uint64_t round = 0;
  for (const Algorithm algorithm : plan::algorithms_of(Collective::all_to_all)) {
    for (const Compression& codec : kCodecs) {
      for (int shape = 0; shape < kShapes; ++shape) {
        const DataType type = kHalvesAndFloats[++round % 3];
        std::vector<engine::ResolvedCall> calls;
        for (int rank = 0; rank < world_; ++rank) {
          std::vector<std::uint64_t> counts;
          for (int peer = 0; peer < world_; ++peer) counts.push_back(ragged(shape, rank, peer));
          for (int peer = 0; peer < world_; ++peer) counts.push_back(ragged(shape, peer, rank));
          calls.push_back(
              counted(Collective::all_to_all, counts, type, world_, {.compression = codec, .algorithm = algorithm}));
        }
        SCOPED_TRACE(fmt::format("world {} {} shape {}", world_, calls[0].describe(), shape));
        const auto inputs = inputs_of(calls, Pattern::normal, round);
        ASSERT_EQ(difference(type, run(calls, inputs, round), expected_decoded(calls, inputs)), "");
      }
    }
  }
}

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, RaggedCompressed, ::testing::Range(1, 10), world_name);

}  // namespace
}  // namespace qccl::testing
