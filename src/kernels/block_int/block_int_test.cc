// The kernels' contract, the layout of the bytes, and the errors: the bounds of block_int_reference.h, and the mean and
// variance of stochastic rounding, alone and stratified over ranks.
#include "kernels/block_int/block_int.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/codec_kernel_contract.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::array kWidths = {2, 3, 4, 5, 6, 7, 8};

struct BlockIntKernel : FixedSizeKernel<block_int_encoded_bytes, block_int_decode> {
  struct Format : BlockIntFormat {
    bool stochastic = false;
  };
  static constexpr std::size_t kMostTail = 200;

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const int bits : kWidths) {
      for (const std::uint32_t block_size : {1u, 7u, 32u, 37u, 64u, 96u, 128u, 1000u, 1024u, 65536u}) {
        formats.push_back({{bits, block_size}, false});
      }
      for (const std::uint32_t block_size : {7u, 96u, 1000u, 4096u}) formats.push_back({{bits, block_size}, true});
    }
    return formats;
  }
  static std::string text(const Format& format) {
    return std::to_string(format.bits) + (format.stochastic ? " bits, stochastic, block " : " bits, block ") +
           std::to_string(format.block_size);
  }
  static void encode(const Format& format, const float* source, std::size_t n, std::byte* target) {
    const RandomStream stream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};
    block_int_encode(format, source, n, target, format.stochastic ? &stream : nullptr);
  }
};

// Blocks around the sizes of groups of blocks and of runs, and lengths around their ends.
struct BlockIntGroups : BlockIntKernel {
  static constexpr std::size_t kMostTail = 1;
  static std::vector<std::size_t> counts() { return {21000, 8200, 4095, 4096, 4097}; }
  static std::vector<ValueFamily> families() { return {finite_families()[0]}; }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const int bits : {4, 7, 8}) {
      for (const std::uint32_t size : {32u, 256u, 288u, 512u, 736u, 992u, 1056u, 1088u, 4160u, 6400u, 10000u}) {
        formats.push_back({{bits, size}, size % 64 == 0});
      }
    }
    return formats;
  }
};

using Kernels = ::testing::Types<BlockIntKernel, BlockIntGroups>;
INSTANTIATE_TYPED_TEST_SUITE_P(BlockInt, CodecKernelContract, Kernels);

// Clamping at the largest scale moves values by less than 0.06 steps, and nothing overflows there.
TEST(BlockInt, the_largest_scale_reaches_the_largest_float) {
  constexpr double kMax = std::numeric_limits<float>::max();
  for (const int bits : kWidths) {
    const auto scale = static_cast<double>(std::bit_cast<float>(reference::largest_scale_bits(bits)));
    EXPECT_LE(scale * reference::largest_integer(bits), kMax) << bits;
    EXPECT_LT(kMax / scale, reference::largest_integer(bits) + 0.06) << bits;
  }
}

// Scales that no encoder writes: NaN, infinite, negative, zero, too small, too large.
TEST(BlockInt, a_scale_out_of_range_decodes_to_nan) {
  on_every_simd([&] {
    for (const int bits : kWidths) {
      const auto above_largest = static_cast<std::uint16_t>((reference::largest_scale_bits(bits) >> 16) + 1);
      const std::array<std::uint16_t, 10> scales = {0x7FC0, 0x7F81, 0xFFC0, 0x7F80, 0xFF80,
                                                    0xBF80, 0x8000, 0x0000, 0x047F, above_largest};
      for (const std::uint16_t scale : scales) {
        const BlockIntFormat format{bits, 32};
        ByteVector bytes = encoded<BlockIntKernel>({format}, FloatVector(96, 1.0f));
        std::memcpy(bytes.data() + kBlockScaleBytes, &scale, sizeof(scale));
        std::vector<float> decoded(96);
        block_int_decode(format, bytes.data(), nullptr, decoded.data(), decoded.size());
        const auto values = bits_of(decoded);
        for (std::size_t i = 32; i < 64; ++i) ASSERT_EQ(values[i], 0x7FC00000u) << bits << " " << scale;
        ASSERT_NE(values[31], 0x7FC00000u);
        ASSERT_NE(values[64], 0x7FC00000u);
      }
    }
  });
}

// Scales, then the integers; checked by hand.
TEST(BlockInt, golden_vectors) {
  const std::vector<Golden> goldens = {
      // scale 1 = 3F80; integers 1 0 -1 1 -> 01 11 00 01
      {2, {1, 0.5f, -1, 0.75f}, {0x80, 0x3F, 0x71}},
      // scale 1; integers 3 -3 0 1 -1 2 -2 0 -> 000 110 010 111 001 000 101 011
      {3, {3, -3, 0, 1, -1, 2, -2, -0.0f}, {0x80, 0x3F, 0x2B, 0x72, 0x19}},
      // scale 1; ties go to even: 7 2 2 -4 -> 7 2 2 C
      {4, {7, 1.5f, 2.5f, -3.5f}, {0x80, 0x3F, 0x27, 0xC2}},
      // scale 2 = 4000; integers 15 -15 -> 10001 01111
      {5, {30, -30}, {0x00, 0x40, 0x2F, 0x02}},
      // scale 1; integers 31 -31 2 -> 000010 100001 011111
      {6, {31, -31, 2}, {0x80, 0x3F, 0x5F, 0x28, 0x00}},
      // scale 1; integers 63 -1 -> 1111111 0111111
      {7, {63, -1}, {0x80, 0x3F, 0xBF, 0x3F}},
      {8, {127, -127, 0.5f, 1.5f, -0.0f}, {0x80, 0x3F, 0x7F, 0x81, 0x00, 0x02, 0x00}},
      // 1 / 127 = 3C010204 goes up to 3C02 = 0.0079345703, of which 1 is 126.03
      {8, {1}, {0x02, 0x3C, 0x7E}},
      // zeros: the smallest scale 2^-118 = 0480
      {8, {0, 0}, {0x80, 0x04, 0x00, 0x00}},
      // the largest scale, 1.9921875 * 2^127 = 7F7F, which is below FLT_MAX
      {2, {std::numeric_limits<float>::max(), 0}, {0x7F, 0x7F, 0x01}},
      // not finite: the scale NaN, integers 0
      {8, {1, -std::numeric_limits<float>::infinity()}, {0xC0, 0x7F, 0x00, 0x00}},
  };
  for (const Golden& golden : goldens) {
    expect_bytes<BlockIntKernel>({{golden.bits, 128}}, golden.values, golden.bytes);
  }
}

TEST(BlockInt, golden_codes_run_on_across_blocks) {
  // Two blocks of three: scales 1 and 2; integers 3 0 -1 | 3 -3 0, then 18 bits in three bytes.
  expect_bytes<BlockIntKernel>({{3, 3}}, {3, 0, -1, 6, -6, 0}, {0x80, 0x3F, 0x00, 0x40, 0xC3, 0x57, 0x00});
}

struct RoundTrip {
  std::vector<double> scales;
  FloatVector values;
};

RoundTrip round_trip(BlockIntFormat format, const FloatVector& x, const RandomStream* random = nullptr) {
  std::vector<std::byte> bytes(block_int_encoded_bytes(format, x.size()));
  block_int_encode(format, x.data(), x.size(), bytes.data(), random);
  RoundTrip result;
  for (std::size_t block = 0; block < bucket_count(format.block_size, x.size()); ++block) {
    std::uint16_t stored;
    std::memcpy(&stored, bytes.data() + block * kBlockScaleBytes, sizeof(stored));
    result.scales.push_back(reference::read_scale(stored, format.bits));
  }
  result.values.resize(x.size());
  block_int_decode(format, bytes.data(), nullptr, result.values.data(), x.size());
  return result;
}

double largest_magnitude(const FloatVector& x, std::size_t begin, std::size_t end) {
  double largest = 0;
  for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  return largest;
}

TEST(BlockIntAccuracy, nearest_is_within_half_a_step_and_the_step_is_as_small_as_it_can_be) {
  for (const ValueFamily& family : finite_families()) {
    const FloatVector x = family.values(3000, 21);
    for (int bits = 2; bits <= 8; ++bits) {
      for (const std::uint32_t block_size : {1u, 50u, 128u, 4000u}) {
        const double most = reference::largest_integer(bits);
        const RoundTrip y = round_trip({bits, block_size}, x);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double scale = y.scales[i / block_size];
          const double error = std::fabs(static_cast<double>(x[i]) - y.values[i]);
          ASSERT_LE(error, scale * (0.5 + most * 0x1p-23)) << family.name << " " << bits << " " << x[i];
        }
        for (std::size_t block = 0; block < y.scales.size(); ++block) {
          const double largest =
              largest_magnitude(x, block * block_size, std::min<std::size_t>(x.size(), (block + 1) * block_size));
          ASSERT_LE(y.scales[block], std::max(largest / most * (1 + 0x1p-7 + 0x1p-22), 0x1p-118)) << family.name;
        }
      }
    }
  }
}

TEST(BlockIntAccuracy, zeros_and_the_signs_of_small_values_are_exact) {
  const FloatVector zeros(300, -0.0f);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const float y : round_trip({bits, 128}, zeros).values) ASSERT_EQ(y, 0.0f);
    FloatVector x(300, 0.0f);
    x[7] = 5.0f;
    x[8] = -5.0f;
    const FloatVector y = round_trip({bits, 128}, x).values;
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i] == 0, x[i] == 0) << bits << " " << i;
    ASSERT_EQ(y[7], -y[8]);
    ASSERT_NEAR(y[7], 5.0f, 5.0 / 127);
  }
}

// Mean square error relative to the mean square of Gaussian values, computed independently of the library, in double
// with 2^23 samples. With scales that are not rounded up the first would be 2.86e-5, the last 5.13e-2.
TEST(BlockIntAccuracy, error_of_gaussian_values_is_that_of_a_model_in_double) {
  struct Case {
    int bits;
    std::uint32_t block_size;
    double error;
  };
  const FloatVector x = finite_families()[0].values(1 << 18, 22);
  for (const Case& c : {Case{8, 32, 2.99e-5}, Case{8, 128, 4.24e-5}, Case{8, 256, 4.88e-5}, Case{6, 32, 4.84e-4},
                        Case{5, 64, 2.54e-3}, Case{4, 32, 9.47e-3}, Case{4, 64, 1.166e-2}, Case{3, 32, 5.16e-2}}) {
    const RoundTrip y = round_trip({c.bits, c.block_size}, x);
    double error = 0, power = 0, expected = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double scale = y.scales[i / c.block_size];
      error += std::pow(static_cast<double>(x[i]) - y.values[i], 2);
      power += std::pow(static_cast<double>(x[i]), 2);
      expected += scale * scale / 12;
    }
    EXPECT_NEAR(error / power, c.error, 0.03 * c.error) << c.bits << " " << c.block_size;
    EXPECT_LE(error, expected * 1.02) << c.bits << " " << c.block_size;
  }
}

UnitSteps unit_steps(int bits) {
  const int most = reference::largest_integer(bits);
  return {-most, most, {static_cast<float>(most)}, [=](const FloatVector& x, const RandomStream& random) {
            return round_trip({bits, 65536}, x, &random).values;
          }};
}

TEST(BlockIntAccuracy, stochastic_rounding_has_the_right_mean_and_variance) {
  for (const int bits : {3, 4, 8}) {
    SCOPED_TRACE(bits);
    expect_right_mean_and_variance(unit_steps(bits), 4096);
  }
}

TEST(BlockIntAccuracy, errors_stratified_over_ranks_cancel_in_the_sum) { expect_errors_of_ranks_cancel(unit_steps(8)); }

TEST(BlockIntAccuracy, whole_numbers_do_not_move) {
  FloatVector x(255);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i) - 127);
  for (std::uint64_t key = 0; key < 100; ++key) {
    const RandomStream stream{.key = key};
    ASSERT_EQ(round_trip({8, 255}, x, &stream).values, x);
  }
}

// If the scale is at its upper limit, the largest values are clamped and nothing overflows.
TEST(BlockIntAccuracy, stochastic_rounding_near_the_largest_float_stays_within_a_step) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const FloatVector x = {kMax, -kMax, 0.9f * kMax, -0.99f * kMax, 0.3f * kMax, 0.0f};
  for (int bits = 2; bits <= 8; ++bits) {
    for (std::uint64_t key = 0; key < 300; ++key) {
      const RandomStream stream{.key = key};
      const RoundTrip y = round_trip({bits, 128}, x, &stream);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_LT(std::fabs(static_cast<double>(x[i]) - y.values[i]), y.scales[0]) << bits << " " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace qccl::kernels
