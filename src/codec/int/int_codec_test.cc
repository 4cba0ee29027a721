// The promises of the int codec: true size, bounded error, no wrong number in place of one that is not finite, no read
// or write out of bounds, and randomness that depends only on key, rank and element index.
#include "codec/int/int_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::finite_families;
using kernels::on_every_simd;
using kernels::Random;
using kernels::ValueFamily;

constexpr std::array<std::uint32_t, 6> kBlocks = {1, 7, 32, 128, 1000, 65536};

using ByteVector = std::vector<std::byte>;

ByteVector encode(const Codec& codec, std::span<const float> values, const RandomStream& random = {}) {
  ByteVector bytes(codec.max_encoded_bytes(values.size()));
  EXPECT_EQ(codec.encode(values, bytes, random), bytes.size());
  return bytes;
}

std::vector<float> decode(const Codec& codec, const ByteVector& bytes, std::size_t count) {
  std::vector<float> values(count);
  const Status status = codec.decode(bytes, values);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return values;
}

// Largest |y - x| relative to the bound, over all blocks.
double worst_error(const Codec& codec, const std::vector<float>& x, const std::vector<float>& y) {
  double worst = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += codec.bucket_size()) {
    const std::size_t end = std::min(x.size(), begin + codec.bucket_size());
    const auto [low, high] = std::minmax_element(&x[begin], &x[begin] + (end - begin));
    const double bound = codec.error_bound({*low, *high});
    for (std::size_t i = begin; i < end; ++i) {
      const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i]));
      worst = std::max(worst, std::isfinite(y[i]) ? error / bound : HUGE_VAL);
    }
  }
  return worst;
}

TEST(IntCodec, size_is_exactly_the_scales_and_bits_times_elements) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::uint32_t block : kBlocks) {
      const IntCodec codec(bits, block, false);
      for (std::size_t n = 0; n < 300; ++n) {
        const std::size_t expected = 2 * ((n + block - 1) / block) + (n * static_cast<std::size_t>(bits) + 7) / 8;
        ASSERT_EQ(codec.max_encoded_bytes(n), expected) << bits << " " << block << " " << n;
        ASSERT_EQ(encode(codec, std::vector<float>(n, 1.0f)).size(), expected);
      }
    }
  }
}

TEST(IntCodec, every_element_is_within_the_bound) {
  on_every_simd([&] {
    for (const ValueFamily& family : finite_families()) {
      const std::vector<float> x = family.values(3001, 11);
      for (int bits = 2; bits <= 8; ++bits) {
        for (const std::uint32_t block : kBlocks) {
          for (const bool stochastic : {false, true}) {
            const IntCodec codec(bits, block, stochastic);
            const std::vector<float> y = decode(codec, encode(codec, x, {.key = 3}), x.size());
            ASSERT_LE(worst_error(codec, x, y), 1.0) << family.name << ", bits " << bits << ", block " << block;
          }
        }
      }
    }
  });
}

// The bound is tight: half a step is reached, and the test would notice a step and a half.
TEST(IntCodec, the_error_comes_near_the_bound) {
  const std::vector<float> x = finite_families()[0].values(65536, 12);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const bool stochastic : {false, true}) {
      const IntCodec codec(bits, 128, stochastic);
      EXPECT_GT(worst_error(codec, x, decode(codec, encode(codec, x), x.size())), 0.97) << bits;
    }
  }
}

// DeepSpeed's symmetric quantizer divides by 2^(bits - 1) and clips the positive maximum by a whole step.
TEST(IntCodec, both_ends_of_the_range_are_as_near_as_all_else) {
  for (int bits = 2; bits <= 8; ++bits) {
    const IntCodec codec(bits, 128, false);
    const std::vector<float> y = decode(codec, encode(codec, std::vector<float>{3.7f, -3.7f, 0.0f}), 3);
    EXPECT_NEAR(y[0], 3.7f, 3.7 / 127) << bits;
    EXPECT_EQ(y[1], -y[0]);
    EXPECT_EQ(y[2], 0.0f);
  }
}

// A scale in float16 would be zero here, and the block lost.
TEST(IntCodec, small_gradients_survive) {
  const IntCodec codec(8, 128, false);
  std::vector<float> x = finite_families()[0].values(1280, 13);
  for (float& value : x) value *= 1e-9f;
  const std::vector<float> y = decode(codec, encode(codec, x), x.size());
  EXPECT_LE(worst_error(codec, x, y), 1.0);
  EXPECT_GT(std::count_if(y.begin(), y.end(), [](float value) { return value != 0; }), 1200);
}

TEST(IntCodec, a_block_that_is_not_finite_decodes_to_nan_and_its_neighbours_are_untouched) {
  const std::vector<float> clean = finite_families()[0].values(1000, 15);
  on_every_simd([&] {
    for (int bits = 2; bits <= 8; ++bits) {
      for (const std::uint32_t block : {96u, 100u}) {
        const IntCodec codec(bits, block, false);
        const std::vector<float> expected = decode(codec, encode(codec, clean), clean.size());
        for (const float poison : {std::nanf(""), -std::nanf("5"), HUGE_VALF, -HUGE_VALF}) {
          for (const std::size_t at : {0u, 299u, 300u, 350u, 999u}) {
            std::vector<float> x = clean;
            x[at] = poison;
            const std::vector<float> y = decode(codec, encode(codec, x), x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
              const bool lost = i / block == at / block;
              ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]),
                        lost ? 0x7FC00000u : std::bit_cast<std::uint32_t>(expected[i]))
                  << bits << " " << at << " " << i;
            }
          }
        }
      }
    }
  });
}

TEST(IntCodec, stochastic_rounding_depends_on_key_rank_and_place_alone) {
  const std::vector<float> x = finite_families()[0].values(3000, 19);
  for (int bits = 2; bits <= 8; ++bits) {
    const IntCodec codec(bits, 100, true);
    const RandomStream random{.key = 5, .first_element = 1000, .rank = 1, .world = 4};
    const ByteVector whole = encode(codec, x, random);
    const std::vector<float> y = decode(codec, whole, x.size());
    const std::span<const float> rest = std::span(x).subspan(1600);
    const std::vector<float> rest_y = decode(codec, encode(codec, rest, {5, 2600, 1, 4}), rest.size());
    ASSERT_TRUE(std::equal(rest_y.begin(), rest_y.end(), y.begin() + 1600)) << bits;
    for (const RandomStream& other :
         {RandomStream{6, 1000, 1, 4}, RandomStream{5, 1001, 1, 4}, RandomStream{5, 1000, 2, 4}}) {
      EXPECT_NE(encode(codec, x, other), whole) << bits;
    }
    const IntCodec nearest(bits, 100, false);
    EXPECT_EQ(encode(nearest, x, random), encode(nearest, x)) << bits;
  }
}

TEST(IntCodec, any_other_size_is_corrupt_data) {
  const IntCodec codec(5, 10, false);
  const ByteVector bytes = encode(codec, std::vector<float>(33, 1.0f));
  std::vector<float> target(33, -1.0f);
  for (std::size_t size = 0; size <= bytes.size() + 3; ++size) {
    if (size == bytes.size()) continue;
    ByteVector other(bytes);
    other.resize(size);
    const Status status = codec.decode(other, target);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
    EXPECT_NE(status.error().message.find("33 elements"), std::string::npos);
    EXPECT_FALSE(codec.decode_add(other, target, target).ok());
  }
  EXPECT_EQ(target, std::vector<float>(33, -1.0f));
}

// The address sanitizer sees every byte read or written out of bounds here.
TEST(IntCodec, random_bytes_of_the_right_size_decode_within_bounds) {
  Random random(16);
  on_every_simd([&] {
    for (int round = 0; round < 2000; ++round) {
      const auto block = static_cast<std::uint32_t>(round % 2 == 0 ? 32 * (1 + random() % 5) : 1 + random() % 200);
      const IntCodec codec(2 + static_cast<int>(random() % 7), block, false);
      const std::size_t n = random() % 400;
      const std::size_t size = codec.max_encoded_bytes(n);
      const auto bytes = std::make_unique<std::byte[]>(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random());
      const auto target = std::make_unique<float[]>(n);
      EXPECT_TRUE(codec.decode({bytes.get(), size}, {target.get(), n}).ok());
      EXPECT_TRUE(codec.decode_add({bytes.get(), size}, {target.get(), n}, {target.get(), n}).ok());
    }
  });
}

TEST(IntCodec, decode_add_is_decode_and_one_rounded_sum) {
  const std::vector<float> x = finite_families()[0].values(3000, 17);
  const std::vector<float> addend = finite_families()[0].values(3000, 18);
  for (int bits = 2; bits <= 8; ++bits) {
    const IntCodec codec(bits, 128, false);
    const ByteVector bytes = encode(codec, x);
    const std::vector<float> y = decode(codec, bytes, x.size());
    std::vector<float> sum(x.size());
    ASSERT_TRUE(codec.decode_add(bytes, addend, sum).ok());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], addend[i] + y[i]);
  }
}

}  // namespace
}  // namespace qccl
