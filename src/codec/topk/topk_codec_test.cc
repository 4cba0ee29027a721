// The size, the bound and the property of top-k, and damage reported as CorruptData. The selection itself and all
// instruction sets: kernels/topk/topk_test.cc.
#include "codec/topk/topk_codec.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

constexpr double kDensities[] = {0.0002, 0.001, 0.01, 0.1, 0.5};

std::shared_ptr<const Codec> codec(TopkOptions options) { return make_codec(topk(options)).take_or_throw(); }

std::vector<std::byte> encode(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec.max_encoded_bytes(values.size()));
  EXPECT_EQ(codec.encode(values, bytes, {}), bytes.size());
  return bytes;
}

std::vector<float> decode(const Codec& codec, const std::vector<std::byte>& bytes, std::size_t count) {
  std::vector<float> values(count);
  EXPECT_TRUE(codec.decode(bytes, values).ok());
  return values;
}

double squared(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0, [](double sum, double v) { return sum + v * v; });
}

TEST(TopkCodec, size_is_that_of_the_density_rounded_up_to_an_element_a_chunk) {
  for (const double density : kDensities) {
    const double kept = std::ceil(density * 4096);
    for (const std::size_t n : {1u, 1000u, 4096u, 4097u, 32768u}) {
      double floats = 0, codes = 0;
      for (std::size_t left = n; left > 0; left -= std::min<std::size_t>(left, 4096)) {
        const double k = std::ceil(kept * static_cast<double>(std::min<std::size_t>(left, 4096)) / 4096);
        floats += 4 * k + std::ceil(1.5 * k);
        codes += 4 + k + std::ceil(1.5 * k);
      }
      EXPECT_EQ(codec({.density = density})->max_encoded_bytes(n), floats) << density << " " << n;
      EXPECT_EQ(codec({.density = density, .int8_values = true})->max_encoded_bytes(n), codes) << density << " " << n;
    }
  }
}

TEST(TopkCodec, of_all_elements_together_no_more_is_lost_than_the_share_that_is_not_sent) {
  for (const auto& family : kernels::finite_families()) {
    const std::vector<float> x = family.values(3 * 4096 + 500, 1);
    for (const double density : kDensities) {
      const auto sparse = codec({.density = density});
      std::vector<float> error = decode(*sparse, encode(*sparse, x), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) error[i] = x[i] - error[i];
      EXPECT_LE(squared(error), (1 - density) * squared(x) * (1 + 1e-9)) << family.name << " " << density;
    }
  }
}

TEST(TopkCodec, every_element_is_within_the_bound) {
  for (const auto& family : kernels::finite_families()) {
    for (const std::size_t n : {1u, 2u, 700u, 4096u}) {
      const std::vector<float> x = family.values(n, 2);
      const auto [low, high] = std::minmax_element(x.begin(), x.end());
      for (const bool int8_values : {false, true}) {
        for (const double density : kDensities) {
          const auto sparse = codec({.density = density, .int8_values = int8_values});
          const double bound = sparse->error_bound({*low, *high, std::sqrt(squared(x)) * (1 + 1e-12)});
          const std::vector<float> y = decode(*sparse, encode(*sparse, x), n);
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), bound) << family.name << " " << density;
          }
        }
      }
    }
  }
}

TEST(TopkCodec, damage_is_corrupt_data) {
  const auto sparse = codec({});
  std::vector<float> target(5000);
  std::vector<std::byte> bytes = encode(*sparse, kernels::finite_families()[0].values(target.size(), 3));
  for (const std::size_t size : {std::size_t{0}, bytes.size() - 1}) {
    EXPECT_EQ(sparse->decode({bytes.data(), size}, target).error().kind, ErrorKind::corrupt_data);
    EXPECT_EQ(sparse->decode_add({bytes.data(), size}, target, target).error().kind, ErrorKind::corrupt_data);
  }
  bytes[41 * 4] = bytes[41 * 4 + 1] = bytes[41 * 4 + 2] = std::byte{0xFF};  // makes the first two indices equal
  EXPECT_EQ(sparse->decode(bytes, target).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(sparse->decode_add(bytes, target, target).error().kind, ErrorKind::corrupt_data);
}

TEST(TopkCodec, specifications_are_read_and_written) {
  EXPECT_EQ(topk().to_string(), "topk:density=0.01,values=fp32");
  EXPECT_EQ(Compression::parse("topk:density=0.05,values=int8"), topk({.density = 0.05, .int8_values = true}));
  EXPECT_THROW(topk({.density = 0}), Error);
  EXPECT_THROW(topk({.density = 0.51}), Error);
  EXPECT_FALSE(codec({})->is_exact());
}

}  // namespace
}  // namespace qccl
