// Bounds that hold for every finite element, sizes, and settings. The bytes: kernels/grid/grid_test.cc. The promises of
// every codec: tests/property/codec_contract_test.cc.
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::finite_families;

constexpr Rounding kRoundings[] = {Rounding::nearest, Rounding::stochastic};

double largest_error(const Codec& codec, const std::vector<float>& x) {
  const std::vector<float> y = round_trip(codec, x, {.key = 3});
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(double{x[i]} - double{y[i]}));
  return worst;
}

TEST(GridCodec, a_bound_holds_for_every_finite_element) {
  for (const Rounding rounding : kRoundings) {
    for (const double bound : {1e-30, 1e-12, 3.7e-5, 1e-4, 0.5, 1.0, 1234.5, 1e30}) {
      const auto codec = codec_of(grid({.bound = bound, .rounding = rounding}));
      const auto coded = codec_of(grid({.bound = bound, .entropy = true, .rounding = rounding}));
      for (const kernels::ValueFamily& family : finite_families()) {
        const std::vector<float> x = family.values(5000, 7);
        EXPECT_LE(largest_error(*codec, x), bound) << family.name;
        EXPECT_EQ(round_trip(*coded, x, {.key = 3}), round_trip(*codec, x, {.key = 3})) << family.name;
      }
      // Multiples of every size that integers hold, near the middle between two.
      std::vector<float> middles;
      for (int i = 1; i < 33000; i += 7) {
        middles.push_back(static_cast<float>((i + 0.499) * bound));
        middles.push_back(static_cast<float>((i + 0.501) * -bound));
      }
      EXPECT_LE(largest_error(*codec, middles), bound) << bound;
      EXPECT_GT(largest_error(*codec, middles), 0.97 * bound) << bound;
    }
  }
}

TEST(GridCodec, what_integers_cannot_hold_is_sent_unchanged_and_changes_no_other_element) {
  const auto codec = codec_of(grid({.bound = 1e-3}));
  std::vector<float> x = finite_families()[0].values(320, 5);
  const std::vector<float> alone = round_trip(*codec, x);
  const float beyond[] = {33.1f, -1e30f, HUGE_VALF, -HUGE_VALF};
  for (std::size_t i = 0; i < std::size(beyond); ++i) x[40 * i + 3] = beyond[i];
  const std::vector<float> y = round_trip(*codec, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_beyond = i % 40 == 3 && i / 40 < std::size(beyond);
    EXPECT_EQ(y[i], is_beyond ? x[i] : alone[i]) << i;
  }
}

TEST(GridCodec, headers_say_how_long_a_slice_is) {
  for (const Compression& compression : {grid({.bound = 1e-3}), grid({.bound = 1e-30}), grid({.bucket = 256})}) {
    const auto codec = codec_of(compression);
    for (const std::size_t n : {0, 1, 33, 64, 1000, 5001}) {
      const std::vector<float> x = finite_families()[14].values(n, 7);
      std::vector<std::byte> bytes(codec->max_encoded_bytes(n) + 1, std::byte{0xFF});
      const std::size_t encoded = codec->encode(x, bytes, {});
      EXPECT_EQ(codec->find_encoded_bytes(bytes, n), encoded) << n;
      EXPECT_EQ(codec->find_encoded_bytes(ConstBytes(bytes).first(encoded), n), encoded) << n;
      if (n == 0) continue;
      EXPECT_EQ(codec->find_encoded_bytes(ConstBytes(bytes).first(encoded - 1), n), std::nullopt) << n;
      EXPECT_EQ(codec->find_encoded_bytes(ConstBytes(), n), std::nullopt) << n;
    }
  }
}

TEST(GridCodec, forms_that_no_encoder_writes_are_no_slice) {
  const auto bounded = codec_of(grid({.bound = 1e-3})), relative = codec_of(grid({.bucket = 256}));
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(bounded->find_encoded_bytes(bytes, 96), 2u);  // three blocks of zeros
  bytes[1] = std::byte{0x10};                             // a fourth one
  EXPECT_EQ(bounded->find_encoded_bytes(bytes, 96), std::nullopt);
  EXPECT_EQ(bounded->find_encoded_bytes(bytes, 128), 2u + 4);
  bytes[2] = std::byte{0x0F};  // behind a step, float32
  EXPECT_EQ(relative->find_encoded_bytes(bytes, 128), std::nullopt);
}

TEST(GridCodec, a_relative_step_is_that_share_of_the_root_mean_square) {
  const std::vector<float> x = finite_families()[0].values(1 << 16, 5);
  for (const Rounding rounding : kRoundings) {
    for (const double relative : {0.03125, 0.5, 1.0}) {
      const auto codec = codec_of(grid({.relative = relative, .rounding = rounding}));
      const double most = rounding == Rounding::nearest ? relative / 2 : relative;
      EXPECT_NEAR(largest_error(*codec, x) / most, 1, 0.06) << relative;
    }
  }
}

TEST(GridCodec, buckets_and_blocks_of_zeros_take_four_bits_a_block) {
  const std::vector<float> zeros(8192);
  EXPECT_EQ(encoded(*codec_of(grid({.bound = 1e-4})), zeros).size(), 128u);
  EXPECT_EQ(encoded(*codec_of(grid()), zeros).size(), 4u + 128u);
}

TEST(GridCodec, the_largest_size_is_reached_and_never_exceeded) {
  const auto bounded = codec_of(grid({.bound = 1e-30}));
  const auto relative = codec_of(grid({.relative = 0.03125, .bucket = 256}));
  for (const std::size_t n : {1u, 7u, 8u, 31u, 32u, 33u, 255u, 256u, 1000u}) {
    const std::vector<float> x = finite_families()[0].values(n, 2);
    if (n % 32 >= 4 || n % 32 == 0) {
      EXPECT_EQ(encoded(*bounded, x).size(), bounded->max_encoded_bytes(n)) << n;
    }
    // One element has all of the energy: 16 / 0.03125 = 512 steps, zigzag 1024, 11 bits.
    std::vector<float> peak(n);
    peak[n / 2] = 5;
    EXPECT_LE(encoded(*relative, peak).size(), relative->max_encoded_bytes(n)) << n;
  }
  EXPECT_EQ(relative->max_encoded_bytes(256), 2 + 4 + 32 * 11u);
  std::vector<float> peak(256);
  peak[3] = -5;
  EXPECT_EQ(encoded(*relative, peak).size(), 2 + 4 + 4 * 11u - 4 * 1u);  // -512 steps: zigzag 1023, 10 bits
}

// Within 4 % and the classes' bits of the entropies of Gauss, rounded to steps of 0.5, 1 and 2: 3.06, 2.10 and 1.25.
TEST(GridCodec, the_entropy_stage_takes_about_the_entropy) {
  std::vector<float> x = finite_families()[0].values(1 << 16, 5);
  const auto bits_of = [&](const Compression& compression) {
    return 8.0 * static_cast<double>(encoded(*codec_of(compression), x).size()) / static_cast<double>(x.size());
  };
  EXPECT_NEAR(bits_of(grid({.relative = 0.5, .entropy = true})), 3.06, 0.04 * 3.06 + 0.04);
  EXPECT_NEAR(bits_of(grid({.relative = 1, .entropy = true})), 2.10, 0.04 * 2.10 + 0.04);
  EXPECT_NEAR(bits_of(grid({.bound = 1, .entropy = true})), 1.25, 0.04 * 1.25 + 0.04);
  EXPECT_GT(bits_of(grid({.relative = 0.5})), 3.9);
  std::fill(x.begin(), x.end(), 0.0f);
  EXPECT_LT(bits_of(grid({.bound = 1, .entropy = true})), 0.04);
}

TEST(GridCodec, settings_are_read_written_and_refused_together) {
  EXPECT_EQ(Compression::parse("grid:bound=1e-4"), grid({.bound = 1e-4}));
  EXPECT_EQ(Compression::parse("grid:relative=0.25,bucket=256"), grid({.relative = 0.25, .bucket = 256}));
  EXPECT_EQ(grid({.bound = 1e-4}).to_string(), "grid:bound=0.0001");
  EXPECT_EQ(grid().to_string(), "grid");
  const std::string why = "relative and bucket don't go with bound";
  EXPECT_NE(refusal([] { return Compression::parse("grid:bound=1e-4,relative=1"); }).find(why), std::string::npos);
  EXPECT_NE(refusal([] { return grid({.bound = 1, .bucket = 256}); }).find(why), std::string::npos);
  for (const char* const spec : {"grid:bound=0", "grid:bound=-1", "grid:bound=nan", "grid:bound=1e31",
                                 "grid:relative=0", "grid:relative=5", "grid:bucket=300"}) {
    EXPECT_NE(refusal([&] { return Compression::parse(spec); }).find("can't be"), std::string::npos) << spec;
  }
}

}  // namespace
}  // namespace qccl
