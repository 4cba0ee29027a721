// The kernels' contract, and the reference against its definition.
#include "kernels/sign/sign.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"

namespace qccl::kernels {
namespace {

using Bits = std::vector<std::uint32_t>;

struct SignKernel : FixedSizeKernel<sign_encoded_bytes, sign_decode> {
  using Format = SignFormat;
  static std::vector<std::size_t> counts() { return {3 * 4160 + 77}; }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const std::uint32_t bucket_size : {1u, 3u, 7u, 8u, 32u, 64u, 72u, 100u, 1024u, 4160u, 65536u}) {
      for (const bool norm : {false, true}) formats.push_back({bucket_size, norm});
    }
    return formats;
  }
  static std::string text(Format format) {
    return "bucket " + std::to_string(format.bucket_size) + (format.norm_scale ? ", norm" : ", mean");
  }
  static void encode(Format format, const float* source, std::size_t n, std::byte* target) {
    sign_encode(format, source, n, target);
  }
  static constexpr auto encode_with_residual = sign_encode;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sign, CodecKernelContract, SignKernel);

Bits decoded(SignFormat format, const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n);
  sign_decode(format, bytes.data(), nullptr, values.data(), n);
  return bits_of(values);
}

// Scales 11 / 6 = 3FEAAAAB and 10 / 4; with the norm sqrt(39 / 6) = 40232B2B.
TEST(Sign, the_bytes_are_scales_and_bits_lowest_first) {
  FloatVector values = {1.0f, -2.0f, 0.0f, -0.0f, -5.0f, 3.0f, 1.0f, -1.0f, 2.0f, -6.0f};
  expect_bytes<SignKernel>({6, false}, values, {0xAB, 0xAA, 0xEA, 0x3F, 0, 0, 0x20, 0x40, 0b10010010, 0b10});
  values.resize(6);
  expect_bytes<SignKernel>({6, true}, values, {0x2B, 0x2B, 0x23, 0x40, 0b010010});
}

// Even if no float32 holds the sum, or its square.
TEST(Sign, scales_are_right_for_the_largest_and_the_smallest_values) {
  for (const float value : {std::numeric_limits<float>::max(), 3e38f, 1e30f, 1e-30f, 0x1p-149f}) {
    for (const bool norm : {false, true}) {
      const std::vector<float> values(65536, -value);
      on_every_simd([&] {
        const Bits y = decoded({65536, norm}, encoded<SignKernel>({65536, norm}, values), values.size());
        ASSERT_NEAR(std::bit_cast<float>(y.front()) / value, -1, norm ? 0 : 0x1p-17) << value;
        ASSERT_EQ(y.front(), y.back());
      });
    }
  }
}

TEST(Sign, a_scale_that_no_encoder_writes_decodes_to_nan) {
  ByteVector bytes = encoded<SignKernel>({}, {1.0f, -1.0f});
  on_every_simd([&] {
    for (const std::uint32_t scale : {0x80000000u, 0xBF800000u, 0x7F800000u, 0x7F800001u, 0xFFFFFFFFu, 0xFF800000u}) {
      std::memcpy(bytes.data(), &scale, sizeof(scale));
      EXPECT_EQ(decoded({}, bytes, 2), Bits(2, kCanonicalNanBits)) << scale;
    }
    const std::uint32_t zero = 0;
    std::memcpy(bytes.data(), &zero, sizeof(zero));
    EXPECT_EQ(decoded({}, bytes, 2), (Bits{0, 0x80000000u}));
  });
}

}  // namespace
}  // namespace qccl::kernels
