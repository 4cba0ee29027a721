// The kernels' contract, the layout of the bytes, the errors, and hostile bytes.
#include "kernels/grid/grid.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"
#include "kernels/grid/grid_reference.h"

namespace qccl::kernels {
namespace {

constexpr RandomStream kStream{.key = 11, .first_element = 12345, .rank = 1, .world = 3};

struct GridKernel : CodecKernel {
  struct Format : GridFormat {
    bool stochastic = false;
  };
  static constexpr std::size_t kMostTail = 300;
  static std::vector<std::size_t> counts() { return {33, 2500, 9000}; }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const bool stochastic : {false, true}) {
      for (const float step : {0x1p-118f, 2e-30f, 1e-4f, 0.013f, 1.0f, 2e30f}) formats.push_back({{step}, stochastic});
      for (const float relative : {0x1p-5f, 0.3f, 4.0f}) {
        for (const std::uint32_t bucket : {256u, 4096u}) formats.push_back({{0, relative, bucket}, stochastic});
      }
      for (const float step : {1e-4f, 0.3f}) formats.push_back({{.step = step, .entropy = true}, stochastic});
      for (const float relative : {0x1p-5f, 0.3f, 2.0f}) {
        formats.push_back({{.relative = relative, .bucket_size = 1024, .entropy = true}, stochastic});
      }
    }
    return formats;
  }
  static std::string text(const Format& format) {
    return "step " + std::to_string(format.step) + ", relative " + std::to_string(format.relative) + ", bucket " +
           std::to_string(format.bucket_size) + (format.entropy ? ", entropy" : "") +
           (format.stochastic ? ", stochastic" : "");
  }
  static std::size_t max_bytes(const Format& format, std::size_t n) { return grid_max_bytes(format, n); }
  static std::size_t encode(const Format& format, const float* source, std::size_t n, std::byte* target) {
    return grid_encode(format, source, n, target, format.stochastic ? &kStream : nullptr);
  }
  static bool decode(const Format& format, const std::byte* source, std::size_t bytes, const float* addend,
                     float* target, std::size_t n) {
    return grid_decode(format, source, bytes, addend, target, n);
  }
};

// Lengths around the ends of buckets and of the entropy stage's segments.
struct GridSegments : GridKernel {
  static constexpr std::size_t kMostTail = 1;
  static std::vector<std::size_t> counts() { return {32767, 32896, 70001}; }
  static std::vector<ValueFamily> families() {
    return {finite_families()[0], finite_families()[6], families_with_nonfinite().back()};
  }
  static std::vector<Format> formats() {
    return {{{.step = 0.5f, .entropy = true}, false},
            {{.relative = 1, .bucket_size = 65536, .entropy = true}, true},
            {{.relative = 0.25f, .bucket_size = 32768}, false}};
  }
};

using Kernels = ::testing::Types<GridKernel, GridSegments>;
INSTANTIATE_TYPED_TEST_SUITE_P(Grid, CodecKernelContract, Kernels);

// Byte for byte, as in the table in grid.h.
TEST(Grid, layout_of_blocks) {
  const GridKernel::Format unit{{1.0f}};
  // Integers 1, -1, 2, 0: zigzag 2, 1, 4, 0 of 3 bits, padded to eight.
  expect_bytes<GridKernel>(unit, {1, -1.4f, 2.5f, 0.5f}, {0x03, 0x0A, 0x01, 0x00});
  // A block of zeros, and one with 300: zigzag 600, 10 bits, the lower bytes first.
  FloatVector values(33);
  values[32] = 300;
  expect_bytes<GridKernel>(unit, values, {0xA0, 0x58, 0, 0, 0, 0, 0, 0, 0, 0x02, 0});
  // 16384 steps are too many: all of the block is float32, the other element rounded.
  expect_bytes<GridKernel>(unit, {16384, 2.25f}, {0x0F, 0, 0, 0x80, 0x46, 0, 0, 0, 0x40});
  // Relative: the root mean square of 3, 4, 0, 0 is 2.5, and the step half of that, 0x3FA0. Integers 2, 3.
  expect_bytes<GridKernel>({{0, 0.5f, 256}}, {3, 4, 0, 0}, {0xA0, 0x3F, 0x03, 0x34, 0x00, 0x00});
}

TEST(Grid, a_step_that_no_encoder_writes_decodes_to_nan) {
  const GridKernel::Format format{{0, 0.5f, 256}};
  ByteVector bytes = encoded<GridKernel>(format, {3, 4, 0, 0});
  for (const int upper : {0x00, 0x03, 0x7F, 0xBF, 0xFF}) {
    bytes[1] = static_cast<std::byte>(upper);
    on_every_simd([&] {
      float values[4];
      ASSERT_TRUE(grid_decode(format, bytes.data(), bytes.size(), nullptr, values, 4));
      for (const float value : values) EXPECT_TRUE(std::isnan(value)) << upper;
    });
  }
}

TEST(Grid, forms_that_no_encoder_writes_are_refused) {
  float values[33];
  on_every_simd([&] {
    const auto decodes = [&](const GridFormat& format, const ByteVector& bytes, std::size_t n) {
      return grid_decode(format, bytes.data(), bytes.size(), nullptr, values, n);
    };
    const ByteVector unused{std::byte{0x10}}, raw(2 + 1 + 4, std::byte{0x0F});
    EXPECT_FALSE(decodes({.step = 1}, unused, 32));
    EXPECT_TRUE(decodes({.step = 1}, {std::byte{0x00}}, 33));
    EXPECT_FALSE(decodes({.relative = 0.5f, .bucket_size = 256}, raw, 1));
  });
}

// A group of four coded elements: class, states, number of words, words.
TEST(Grid, the_entropy_stage_refuses_what_no_encoder_writes) {
  const GridKernel::Format format{{.step = 1, .entropy = true}};
  FloatVector values(128);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = static_cast<float>(i % 4) - 1;
  const ByteVector good = encoded<GridKernel>(format, values);
  float decoded[128];
  on_every_simd([&] {
    const auto decodes = [&](const ByteVector& bytes, std::size_t n = 128) {
      const auto exact = Guarded<std::byte>::input(bytes, 0);
      return grid_decode(format, exact.data(), bytes.size(), nullptr, decoded, n);
    };
    ASSERT_TRUE(decodes(good));
    EXPECT_EQ(FloatVector(decoded, decoded + 128), values);
    for (std::size_t size = 0; size < good.size(); ++size) {
      EXPECT_FALSE(decodes({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)})) << size;
    }
    EXPECT_FALSE(decodes({good.begin(), good.end()}, 120));
    ByteVector other = good;
    other.push_back(std::byte{0});
    EXPECT_FALSE(decodes(other)) << "a byte more";
    other = good;
    other[0] |= std::byte{0x10};
    EXPECT_FALSE(decodes(other)) << "a class beyond the last group";
    // A changed bit of a state, of the number of words or of a word ends in other states, but for a word now and then.
    std::size_t accepted = 0;
    for (std::size_t at = 1; at < good.size(); ++at) {
      other = good;
      other[at] ^= std::byte{0x04};
      accepted += decodes(other) ? 1 : 0;
    }
    EXPECT_LE(accepted, 1u);
  });
}

// ---- Stochastic rounding.

UnitSteps unit_steps() {
  UnitSteps steps{-100, 100, {}, nullptr};
  steps.round_trip = [](const std::vector<float>& x, const RandomStream& random) {
    const GridFormat format{.step = 1};
    ByteVector bytes(grid_max_bytes(format, x.size()));
    bytes.resize(grid_encode(format, x.data(), x.size(), bytes.data(), &random));
    std::vector<float> y(x.size());
    EXPECT_TRUE(grid_decode(format, bytes.data(), bytes.size(), nullptr, y.data(), y.size()));
    return y;
  };
  return steps;
}

TEST(Grid, stochastic_rounding_has_the_right_mean_and_variance) { expect_right_mean_and_variance(unit_steps(), 2000); }
TEST(Grid, stochastic_errors_of_ranks_cancel) { expect_errors_of_ranks_cancel(unit_steps()); }

}  // namespace
}  // namespace qccl::kernels
