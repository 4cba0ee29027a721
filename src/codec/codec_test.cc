// What several codecs have in common; tests/property/codec_contract_test.cc checks what all codecs promise.
#include "codec/codec.h"

#include <bit>
#include <cmath>
#include <random>

#include "base/half.h"
#include "codec/geometry.h"
#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

// Encoded bytes depend on these numbers: changing them changes the format.
TEST(RandomKey, golden_numbers) {
  EXPECT_EQ(random_key(0, 0, RandomPhase::input), 0x238275bc38fcbe91u);
  EXPECT_EQ(random_key(1, 2, RandomPhase::hop), 0xe930af93af0daf48u);
}

TEST(RandomKey, changes_in_about_half_of_its_bits_with_any_bit_of_its_arguments) {
  const std::uint64_t base = random_key(42, 1000, RandomPhase::input);
  const auto changed = [&](std::uint64_t key) { return std::popcount(key ^ base); };
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_GT(changed(random_key(42 ^ (std::uint64_t{1} << bit), 1000, RandomPhase::input)), 12) << bit;
    EXPECT_GT(changed(random_key(42, 1000 ^ (std::uint64_t{1} << bit), RandomPhase::input)), 12) << bit;
  }
  EXPECT_GT(changed(random_key(42, 1000, RandomPhase::owner)), 12);
  EXPECT_GT(changed(random_key(42, 1000, RandomPhase::hop)), 12);
}

std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit; }

void expect_size(const Compression& compression, std::size_t elements, std::size_t bytes) {
  const auto codec = codec_of(compression);
  ASSERT_EQ(codec->max_encoded_bytes(elements), bytes) << compression.to_string() << " " << elements;
  ASSERT_EQ(encoded(*codec, std::vector<float>(elements, 1.0f)).size(), bytes) << compression.to_string();
}

TEST(Codecs, size_is_exactly_the_headers_and_bits_times_elements) {
  for (const std::uint32_t bucket : {1u, 7u, 32u, 64u, 1000u, 65536u}) {
    for (std::size_t n = 0; n < 300; n += n < 40 ? 1 : 13) {
      const std::size_t buckets = rounded_up(n, bucket);
      for (int bits = 1; bits < 32; ++bits) {
        const std::size_t codes = rounded_up(n * static_cast<std::size_t>(bits), 8);
        expect_size(minmax({.bits = bits, .bucket_size = bucket}), n, 8 * buckets + codes);
        if (bits >= 2 && bits <= 8) expect_size(block_int({.bits = bits, .block = bucket}), n, 2 * buckets + codes);
      }
      expect_size(sign({.bucket_size = bucket}), n, 4 * buckets + rounded_up(n, 8));
    }
  }
  for (std::size_t n = 0; n < 800; n += n < 40 ? 1 : 13) {
    for (int bits = 2; bits <= 4; ++bits) {
      const std::size_t block = 2 + 32 * static_cast<std::size_t>(bits);
      expect_size(h4({.bits = bits}), n, n == 0 ? 0 : 8 + rounded_up(n, 256) * block);
    }
    expect_size(minmax({.bits = 32}), n, 4 * n);
    expect_size(cast(DataType::bfloat16), n, 2 * n);
  }
}

TEST(Codecs, size_of_topk_is_that_of_the_density_rounded_up_to_an_element_a_chunk) {
  for (const double density : {0.0002, 0.001, 0.01, 0.1, 0.5}) {
    const double kept = std::ceil(density * 4096);
    for (const std::size_t n : {1u, 1000u, 4096u, 4097u, 32768u}) {
      double floats = 0, codes = 0;
      for (std::size_t left = n; left > 0; left -= std::min<std::size_t>(left, 4096)) {
        const double k = std::ceil(kept * static_cast<double>(std::min<std::size_t>(left, 4096)) / 4096);
        floats += 4 * k + std::ceil(1.5 * k);
        codes += 4 + k + std::ceil(1.5 * k);
      }
      EXPECT_EQ(codec_of(topk({.density = density}))->max_encoded_bytes(n), floats) << density << " " << n;
      EXPECT_EQ(codec_of(topk({.density = density, .int8_values = true}))->max_encoded_bytes(n), codes)
          << density << " " << n;
    }
  }
}

TEST(Codecs, equal_indices_of_topk_are_corrupt_data) {
  const auto sparse = codec_of(topk());
  std::vector<float> target(5000);
  std::vector<std::byte> bytes = encoded(*sparse, kernels::finite_families()[0].values(target.size(), 3));
  bytes[41 * 4] = bytes[41 * 4 + 1] = bytes[41 * 4 + 2] = std::byte{0xFF};
  EXPECT_EQ(sparse->decode(bytes, target).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(sparse->decode_add(bytes, target, target).error().kind, ErrorKind::corrupt_data);
}

TEST(Codecs, an_error_of_size_names_the_elements) {
  for (const Compression& compression : {minmax({.bits = 5, .bucket_size = 10}), block_int(), sign(), h4(), topk()}) {
    std::vector<float> target(33, -1.0f);
    const Status status = codec_of(compression)->decode(std::vector<std::byte>(1000), target);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
    EXPECT_NE(status.error().message.find("33 elements"), std::string::npos) << status.error().message;
    EXPECT_EQ(target, std::vector<float>(33, -1.0f));
  }
}

// However the run is cut, only the index in the tensor counts.
TEST(Codecs, random_numbers_depend_on_key_rank_and_index_alone) {
  const std::vector<float> x = kernels::finite_families()[0].values(3072, 19);
  std::vector<Compression> compressions = {h4({.bits = 2}), h4({.bits = 3}), h4({.bits = 4})};
  for (int bits = 1; bits < 32; ++bits) {
    compressions.push_back(minmax({.bits = bits, .bucket_size = 256, .rounding = Rounding::stochastic}));
    if (bits < 2 || bits > 8) continue;
    compressions.push_back(block_int({.bits = bits, .block = 256, .rounding = Rounding::stochastic}));
  }
  for (const Compression& compression : compressions) {
    const auto codec = codec_of(compression);
    const RandomStream random{.key = 5, .first_element = 2560, .rank = 1, .world = 4};
    const std::vector<float> whole = round_trip(*codec, x, random);
    const std::span<const float> rest = std::span(x).subspan(1536);
    const std::vector<float> later = round_trip(*codec, rest, {5, 2560 + 1536, 1, 4});
    ASSERT_TRUE(std::equal(later.begin(), later.end(), whole.begin() + 1536)) << compression.to_string();
    for (const RandomStream& other :
         {RandomStream{6, 2560, 1, 4}, RandomStream{5, 2816, 1, 4}, RandomStream{5, 2560, 2, 4}}) {
      EXPECT_NE(round_trip(*codec, x, other), whole) << compression.to_string();
    }
  }
  for (const Compression& nearest : {minmax({.bits = 4}), minmax({.bits = 20}), block_int()}) {
    EXPECT_EQ(encoded(*codec_of(nearest), x, {.key = 5, .rank = 1, .world = 4}), encoded(*codec_of(nearest), x));
  }
}

TEST(Codecs, every_element_is_within_the_bound) {
  std::vector<Compression> compressions = {h4(), sign(), lossless()};
  for (const std::uint32_t bucket : {1u, 7u, 64u, 1000u, 1024u, 65536u}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 31}) {
        compressions.push_back(minmax({.bits = bits, .bucket_size = bucket, .rounding = rounding}));
        if (bits < 2 || bits > 8) continue;
        compressions.push_back(block_int({.bits = bits, .block = bucket, .rounding = rounding}));
      }
    }
  }
  for (const double density : {0.0002, 0.001, 0.01, 0.1, 0.5}) {
    for (const bool int8_values : {false, true}) {
      compressions.push_back(topk({.density = density, .int8_values = int8_values}));
    }
  }
  constexpr std::size_t kCounts[] = {0, 1, 2, 7, 8, 700, 1023, 1024, 4096, 3001, 66000};
  std::size_t next = 0;
  for (const kernels::ValueFamily& family : kernels::finite_families()) {
    const std::vector<float> all = family.values(66000, 11);
    for (const Compression& compression : compressions) {
      const std::size_t count = kCounts[next++ % std::size(kCounts)];
      ASSERT_LE(worst_error(*codec_of(compression), std::span(all).first(count), {.key = 3}), 1.0)
          << family.name << ", " << compression.to_string() << ", " << count << " elements";
    }
  }
  EXPECT_TRUE(codec_of(lossless())->is_exact());
}

// The bound is tight: half a step is reached, and the test would notice a step and a half.
TEST(Codecs, errors_come_near_the_bound) {
  const std::vector<float> x = kernels::finite_families()[0].values(65536, 12);
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    for (int bits = 2; bits <= 8; ++bits) {
      const IntOptions options{.bits = bits, .rounding = rounding};
      EXPECT_GT(worst_error(*codec_of(block_int(options)), x, {.key = 3}), 0.97) << bits;
    }
    for (const int bits : {1, 2, 4, 8}) {
      const MinmaxOptions options{.bits = bits, .rounding = rounding};
      EXPECT_GT(worst_error(*codec_of(minmax(options)), x, {.key = 3}), 0.97) << bits;
    }
  }
}

float rounded(float value, DataType type) {
  if (type == DataType::bfloat16) return to_float(to_bfloat16(value));
  return type == DataType::float16 ? to_float(to_float16(value)) : value;
}

TEST(ExpectedSize, of_lossless_is_that_of_normal_values) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto codec = codec_of(lossless());
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    std::vector<float> values(32768);
    for (float& value : values) value = rounded(normal(random), type);
    const auto expected = static_cast<double>(codec->expected_encoded_bytes(values.size(), type));
    EXPECT_NEAR(static_cast<double>(encoded(*codec, values).size()) / expected, 1, 0.03) << to_string(type);
    EXPECT_EQ(expected_element_bytes(codec.get(), type, values.size()), expected / 32768);
  }
}

TEST(ExpectedSize, of_a_codec_of_fixed_size_is_its_size_and_of_none_the_types) {
  const auto codec = codec_of(minmax({.bits = 4}));
  EXPECT_EQ(codec->expected_encoded_bytes(4096, DataType::bfloat16), codec->max_encoded_bytes(4096));
  EXPECT_EQ(expected_element_bytes(nullptr, DataType::float16, 64), 2);
}

TEST(BlockSummary, bounds_the_norm_by_the_tighter_of_extremes_and_norm) {
  BlockSummary block{.minimum = -3, .maximum = 2};
  EXPECT_EQ(block.norm_of(4), 6);
  block.norm = 7;
  EXPECT_EQ(block.norm_of(4), 6);
  block.norm = 5;
  EXPECT_EQ(block.norm_of(4), 5);
  block.elements = 1;
  EXPECT_EQ(block.norm_of(4), 3);
}

}  // namespace
}  // namespace qccl
