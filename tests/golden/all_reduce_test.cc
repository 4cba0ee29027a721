// Digests of the results for fixed inputs. make_vectors.py computes them independently of the library,
// from the definitions of the codecs and of the reduction.
#include <gtest/gtest.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "support/sim_collective.h"

namespace qccl::testing {
namespace {

constexpr int kWorld = 3;
constexpr std::uint64_t kCount = 1000;

// 24-bit numbers between -128 and 128, exact in float32.
std::vector<ByteVector> fixed_inputs() {
  std::vector<ByteVector> inputs;
  for (std::uint64_t rank = 0; rank < kWorld; ++rank) {
    ByteVector input(kCount * sizeof(float));
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const auto mixed = static_cast<std::uint32_t>(i * 2654435761u + rank * 123456789u);
      const float value = static_cast<float>(mixed >> 8) / 65536.0f - 128.0f;
      std::memcpy(input.data() + i * sizeof(float), &value, sizeof(float));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::uint64_t output_digest(const CallOptions& options) {
  SimWorld world(kWorld);
  const auto call = make_call(Collective::all_reduce, kCount, DataType::float32, kWorld, options);
  const CollectiveResult outcome = run_collective(world, call, fixed_inputs());
  EXPECT_EQ(outcome.problem, "");
  if (outcome.outputs.empty()) return 0;
  return XXH3_64bits(outcome.outputs[0].data(), outcome.outputs[0].size());
}

TEST(GoldenAllReduce, uncompressed_outputs_have_these_digests) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::sra, Algorithm::pairwise}) {
    EXPECT_EQ(output_digest({.op = ReduceOp::sum, .algorithm = algorithm}), 0x5ea875b69669a4c8u);
    EXPECT_EQ(output_digest({.op = ReduceOp::avg, .algorithm = algorithm}), 0x2b94ee6e7df2448au);
    EXPECT_EQ(output_digest({.op = ReduceOp::prod, .algorithm = algorithm}), 0x76a54db78c17b448u);
  }
}

TEST(GoldenAllReduce, compressed_outputs_have_these_digests) {
  const auto sum_of = [](int bits, std::uint32_t bucket_size) {
    return output_digest({.compression = minmax({.bits = bits, .bucket_size = bucket_size})});
  };
  EXPECT_EQ(sum_of(4, 64), 0xe5152da35b6c78bcu);
  EXPECT_EQ(sum_of(1, 1000), 0x28c68c6a8d01ef05u);
  EXPECT_EQ(sum_of(8, 1024), 0x8f45a573a0d909d7u);
  EXPECT_EQ(sum_of(16, 7), 0x6f6e83a00e0ae3d1u);
  EXPECT_EQ(output_digest({.op = ReduceOp::avg, .compression = minmax({.bits = 3, .bucket_size = 100})}),
            0x807136600d3f373cu);
  EXPECT_EQ(output_digest({.compression = cast(DataType::bfloat16)}), 0xf7d4f9c0d0304429u);
}

TEST(GoldenAllReduce, pairwise_has_the_bits_of_sra_compressed_too) {
  for (const int bits : {1, 4, 8}) {
    const Compression compression = minmax({.bits = bits, .bucket_size = 64});
    EXPECT_EQ(output_digest({.compression = compression, .algorithm = Algorithm::pairwise}),
              output_digest({.compression = compression, .algorithm = Algorithm::sra}))
        << bits;
  }
}

TEST(GoldenAllReduce, a_bucket_of_5_bits_is_these_bytes) {
  const auto codec = make_codec(minmax({.bits = 5, .bucket_size = 1024})).take_or_throw();
  std::vector<float> values(16);
  std::memcpy(values.data(), fixed_inputs()[0].data(), 16 * sizeof(float));
  ByteVector encoded(codec->max_encoded_bytes(16));
  ASSERT_EQ(codec->encode(values, encoded, {}), 18u);
  const unsigned char expected[] = {0x0d, 0x88, 0xf9, 0x40, 0x00, 0x00, 0x00, 0xc3, 0x80,
                                    0x22, 0xfe, 0xc6, 0x5d, 0x5f, 0x1a, 0xed, 0x42, 0x4d};
  EXPECT_EQ(std::memcmp(encoded.data(), expected, sizeof(expected)), 0);
}

}  // namespace
}  // namespace qccl::testing
