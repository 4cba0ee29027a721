// The engine's promises to codecs that draw random numbers and whose sizes depend on values: draws
// depend only on seed, counter, phase, rank and element index in the tensor, and exactly the encoded
// bytes arrive.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "plan/plan.h"
#include "support/noisy_codec.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

constexpr std::uint32_t kBucket = NoisyCodec::kBucket;
constexpr std::uint64_t kSeed = 77;

SimOptions options(std::size_t slice_bytes, std::uint64_t seed) {
  return {.seed = seed,
          .link = {.latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2},
          .slice_bytes = slice_bytes,
          .codec_seed = kSeed,
          .codec = std::make_shared<NoisyCodec>()};
}

// Small whole numbers, half of them 0, so that sums are exact.
std::vector<ByteVector> whole_inputs(std::uint64_t count, int world) {
  Random random(5);
  std::vector<ByteVector> inputs;
  for (int rank = 0; rank < world; ++rank) {
    inputs.emplace_back(count * sizeof(float));
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool is_zero = random.below(2) == 0;
      set_element(DataType::float32, inputs.back().data(), i, is_zero ? 0 : 1.0L + random.below(50));
    }
  }
  return inputs;
}

// A value after one rank's encoding.
float encoded(float value, const RandomStream& random, std::uint64_t at) {
  return value == 0 ? 0 : value + noise(random, at);
}

engine::ResolvedCall compressed_call(Collective collective, std::uint64_t count, int world, Algorithm algorithm) {
  const CallOptions options{.compression = minmax({.bits = 4, .bucket_size = kBucket}), .algorithm = algorithm};
  return make_call(collective, count, DataType::float32, world, options);
}

// The result of an all_reduce, computed from the definition of SRA or of the ring.
ByteVector expected_sum(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                        std::uint64_t counter) {
  const int world = static_cast<int>(inputs.size());
  const std::uint64_t share = chunk_share(call, world);
  const auto random = [&](RandomPhase phase, int rank) {
    return RandomStream{.key = random_key(kSeed, counter, phase),
                        .rank = static_cast<std::uint32_t>(rank),
                        .world = static_cast<std::uint32_t>(world)};
  };
  ByteVector result(inputs[0].size());
  for (std::uint64_t i = 0; i < call.count; ++i) {
    const int owner = static_cast<int>(i / share);
    const auto value = [&](int rank) {
      return static_cast<float>(element(DataType::float32, inputs[static_cast<std::size_t>(rank)], i));
    };
    float sum = 0;
    for (int step = 1; step < world; ++step) {
      const int rank = (owner + step) % world;
      const bool is_hop = call.algorithm == Algorithm::ring && step > 1;
      if (is_hop) {
        sum = encoded(sum + value(rank), random(RandomPhase::hop, rank), i);
      } else {
        sum += encoded(value(rank), random(RandomPhase::input, rank), i);
      }
    }
    sum = encoded(sum + value(owner), random(RandomPhase::owner, owner), i);
    set_element(DataType::float32, result.data(), i, sum);
  }
  return result;
}

TEST(DrawnCodec, draws_are_those_of_seed_counter_phase_rank_and_place_in_the_tensor) {
  for (const Algorithm algorithm : {Algorithm::sra, Algorithm::ring}) {
    for (const int world : {2, 3, 5}) {
      const auto call = compressed_call(Collective::all_reduce, 7000, world, algorithm);
      const auto inputs = whole_inputs(call.count, world);
      for (const std::size_t slice_bytes : {4096, 20000, 262144}) {
        SimWorld sim(world, options(slice_bytes, slice_bytes));
        for (std::uint64_t counter = 0; counter < 3; ++counter) {
          SCOPED_TRACE(fmt::format("{}, slices of {}, call {}", call.describe(), slice_bytes, counter));
          const CollectiveResult outcome = run_collective(sim, call, inputs);
          ASSERT_EQ(outcome.problem, "");
          const std::vector<ByteVector> expected(outcome.outputs.size(), expected_sum(call, inputs, counter));
          ASSERT_EQ(difference(call.type, outcome.outputs, expected), "");
        }
      }
    }
  }
}

// Includes 16-bit types and collectives that only move data. Uncompressed calls do not advance the counter.
TEST(DrawnCodec, in_every_collective_neither_slices_nor_arrival_nor_uncompressed_calls_change_anything) {
  constexpr int kWorld = 5;
  const std::vector<int> hosts = {0, 0, 1, 1, 2};
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                                      Collective::broadcast, Collective::all_gather, Collective::all_to_all}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      const auto call = compressed_call(collective, 3000, kWorld, algorithm);
      const auto inputs = whole_inputs(most_input_elements(call, kWorld), kWorld);
      SimOptions fine = options(4096, 1), coarse = options(262144, 2);
      fine.hosts = coarse.hosts = hosts;
      SimWorld first(kWorld, fine), second(kWorld, coarse);
      const auto raw = make_call(Collective::all_reduce, 100, DataType::float32, kWorld);
      ASSERT_EQ(run_collective(second, raw, whole_inputs(100, kWorld)).problem, "");
      for (int round = 0; round < 2; ++round) {
        SCOPED_TRACE(fmt::format("{}, round {}", call.describe(), round));
        const CollectiveResult one = run_collective(first, call, inputs);
        const CollectiveResult other = run_collective(second, call, inputs);
        ASSERT_EQ(one.problem + other.problem, "");
        ASSERT_EQ(difference(call.type, other.outputs, one.outputs), "");
      }
    }
  }
}

TEST(DrawnCodec, a_call_with_a_counter_of_its_own_draws_by_that) {
  constexpr int kWorld = 3;
  SimWorld sim(kWorld, options(4096, 9));
  const auto call = compressed_call(Collective::all_reduce, 500, kWorld, Algorithm::sra);
  const auto inputs = whole_inputs(call.count, kWorld);
  std::vector<ByteVector> outputs = inputs;
  std::vector<SimWork> works;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    engine::ResolvedCall resolved = call;
    resolved.slice_bytes = 4096;
    engine::CallArguments arguments;
    arguments.group = kSimGroup;
    arguments.plan = std::make_shared<const engine::ExecutablePlan>(resolved, kWorld, GroupRank(rank),
                                                                    std::make_shared<NoisyCodec>());
    arguments.input = inputs[rank].data();
    arguments.output = outputs[rank].data();
    arguments.random_counter = 1000;
    arguments.timeout = std::chrono::seconds(10);
    arguments.work = std::make_shared<internal::WorkState>();
    works.push_back(arguments.work);
    sim.engine(static_cast<int>(rank)).post(std::move(arguments));
  }
  ASSERT_TRUE(sim.run(works));
  EXPECT_EQ(difference(call.type, outputs, std::vector<ByteVector>(kWorld, expected_sum(call, inputs, 1000))), "");
}

std::uint64_t encoded_bytes(const ByteVector& data, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t bytes = 0;
  for (std::uint64_t i = begin; i < end; ++i) bytes += element(DataType::float32, data, i) != 0 ? 5 : 1;
  return bytes;
}

TEST(DrawnCodec, exactly_the_encoded_bytes_of_each_slice_are_on_the_wire) {
  constexpr int kWorld = 3;
  const auto call = compressed_call(Collective::all_reduce, 50000, kWorld, Algorithm::sra);
  const auto inputs = whole_inputs(call.count, kWorld);
  SimWorld sim(kWorld, options(8192, 4));
  std::vector<std::uint64_t> sent(kWorld);
  sim.network().set_tap([&](int from, int, Bytes frame) {
    const auto header = wire::decode_header(frame.data());
    if (!header.ok() || header.value().kind != wire::FrameKind::data) return;
    EXPECT_EQ(header.value().payload_bytes, frame.size() - wire::kHeaderBytes);
    sent[static_cast<std::size_t>(from)] += header.value().payload_bytes;
  });
  const CollectiveResult outcome = run_collective(sim, call, inputs);
  ASSERT_EQ(outcome.problem, "");
  const std::uint64_t share = chunk_share(call, kWorld);
  for (std::uint64_t rank = 0; rank < kWorld; ++rank) {
    std::uint64_t stated = 0;
    for (std::uint64_t owner = 0; owner < kWorld; ++owner) {
      const std::uint64_t begin = owner * share;
      const std::uint64_t end = std::min(call.count, begin + share);
      stated += owner == rank ? 2 * encoded_bytes(outcome.outputs[0], begin, end)
                              : encoded_bytes(inputs[static_cast<std::size_t>(rank)], begin, end);
    }
    EXPECT_EQ(sent[rank], stated);
  }
}

}  // namespace
}  // namespace qccl::testing
