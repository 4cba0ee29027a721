// The kernels' contract, and the layout of the bytes.
#include "kernels/minmax/minmax.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"

namespace qccl::kernels {
namespace {

struct MinmaxKernel : FixedSizeKernel<minmax_encoded_bytes, minmax_decode> {
  struct Format : MinmaxFormat {
    bool stochastic = false;
  };
  static constexpr std::size_t kMostTail = 130;
  static std::vector<std::size_t> counts() { return {2100}; }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
      for (const std::uint32_t bucket_size : {1u, 7u, 37u, 64u, 1000u, 1024u, 65536u}) {
        formats.push_back({{bits, bucket_size}, false});
      }
      for (const std::uint32_t bucket_size : {7u, 64u, 1000u}) formats.push_back({{bits, bucket_size}, true});
    }
    for (const int bits : {9, 12, 15, 17, 23, 24, 31}) {
      for (const bool stochastic : {false, true}) formats.push_back({{bits, 100}, stochastic});
    }
    return formats;
  }
  static std::string text(const Format& format) {
    return std::to_string(format.bits) + (format.stochastic ? " bits, stochastic, bucket " : " bits, bucket ") +
           std::to_string(format.bucket_size);
  }
  static void encode(const Format& format, const float* source, std::size_t n, std::byte* target) {
    const RandomStream stream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};
    minmax_encode(format, source, n, target, format.stochastic ? &stream : nullptr);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Minmax, CodecKernelContract, MinmaxKernel);

// Header {unit, minimum}, then the codes; checked by hand.
struct Golden {
  int bits;
  std::vector<float> values;
  std::vector<int> bytes;
};

TEST(Minmax, golden_vectors) {
  const std::vector<Golden> goldens = {
      // unit 1 = 3F800000, minimum 0; codes 0 1 0 1 1 0 0 0 | 1
      {1, {0, 1, 0, 1, 1, 0, 0, 0, 1}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x1A, 0x01}},
      // unit 1, minimum -1 = BF800000; codes 0 1 2 3 -> 11 10 01 00
      {2, {-1, 0, 1, 2}, {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0xBF, 0xE4}},
      // codes 0..7 of three bits: 000 | 001 | 010 ... = 0xFAC688
      {3, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x88, 0xC6, 0xFA}},
      // unit 2 = 40000000, minimum 0; 3 is a half step from 2 and rounds up to code 2: codes 0 2 F
      {4, {0, 3, 30}, {0, 0, 0, 0x40, 0, 0, 0, 0, 0x20, 0x0F}},
      // codes 31 and 0: eleven values would be seven bytes
      {5, {31, 0}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x1F, 0x00}},
      // codes 63, 1, 2
      {6, {63, 1, 2, 0}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x7F, 0x20, 0x00}},
      // codes 127, 0, 1
      {7, {127, 0, 1}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0x7F, 0x40, 0x00}},
      {8, {255, 0, 128.5f}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x00, 0x81}},
      {16, {65535, 0, 258}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0xFF, 0x00, 0x00, 0x02, 0x01}},
      // unit 1, minimum 0; codes 511 0 256 -> 1 0000 0000 | 0 0000 0000 | 1 1111 1111
      {9, {511, 0, 255.5f}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x01, 0x00, 0x04}},
      {12, {4095, 0, 2}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0x0F, 0x00, 0x02, 0x00}},
      {24, {16777215, 0, 258}, {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0x02, 0x01, 0x00}},
      // equal values: the smallest unit 2^-126 = 00800000, minimum 1
      {31, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0}},
      {8, {1, 1}, {0, 0, 0x80, 0x00, 0, 0, 0x80, 0x3F, 0, 0}},
      // not finite: both header fields the canonical NaN
      {9, {1, HUGE_VALF}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0, 0}},
      {8, {1, -std::numeric_limits<float>::infinity()}, {0, 0, 0xC0, 0x7F, 0, 0, 0xC0, 0x7F, 0, 0}},
  };
  for (const Golden& golden : goldens) {
    expect_bytes<MinmaxKernel>({{golden.bits, 1024}}, golden.values, golden.bytes);
  }
}

TEST(Minmax, golden_codes_run_on_across_buckets) {
  // Two buckets of three: unit 1/7 of 7 and of 14; codes 0 7 1 | 7 0 2, then 18 bits in three bytes.
  expect_bytes<MinmaxKernel>({{3, 3}}, {0, 7, 1, 14, 0, 4},
                             {0, 0, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x78, 0x0E, 0x01});
}

}  // namespace
}  // namespace qccl::kernels
