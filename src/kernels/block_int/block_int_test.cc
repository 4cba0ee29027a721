// The kernels' contract, and the layout of the bytes.
#include "kernels/block_int/block_int.h"

#include <array>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/codec_kernel_contract.h"

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
struct Golden {
  int bits;
  std::vector<float> values;
  std::vector<int> bytes;
};

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

}  // namespace
}  // namespace qccl::kernels
