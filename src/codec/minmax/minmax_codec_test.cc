// The promises of the max-min codec: true size, bounded error, no wrong number in place of one that is not finite, no
// read or write out of bounds. Checked against a naive model in double arithmetic.
#include "codec/minmax/minmax_codec.h"

#include <algorithm>
#include <array>
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

constexpr std::array kWidths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 31};
constexpr std::array<std::uint32_t, 6> kBucketSizes = {1, 7, 64, 1000, 1024, 65536};
constexpr std::array<std::size_t, 8> kCounts = {0, 1, 7, 8, 1023, 1024, 3001, 66000};

using ByteVector = std::vector<std::byte>;

ByteVector encode(const Codec& codec, const std::vector<float>& values) {
  ByteVector bytes(codec.max_encoded_bytes(values.size()));
  EXPECT_EQ(codec.encode(values, bytes, {}), bytes.size());
  return bytes;
}

std::vector<float> decode(const Codec& codec, const ByteVector& bytes, std::size_t count) {
  std::vector<float> values(count);
  const Status status = codec.decode(bytes, values);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return values;
}

// Calls use(begin, end) for every bucket.
template <class Use>
void each_bucket(std::size_t count, std::size_t bucket_size, Use use) {
  for (std::size_t begin = 0; begin < count; begin += bucket_size) use(begin, std::min(count, begin + bucket_size));
}

// Largest |y - x| relative to the bound, over all buckets.
double worst_error(const Codec& codec, const std::vector<float>& x, const std::vector<float>& y) {
  double worst = 0;
  each_bucket(x.size(), codec.bucket_size(), [&](std::size_t begin, std::size_t end) {
    const auto [low, high] = std::minmax_element(&x[begin], &x[begin] + (end - begin));
    const double bound = codec.error_bound({*low, *high});
    for (std::size_t i = begin; i < end; ++i) {
      const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i]));
      worst = std::max(worst, std::isfinite(y[i]) ? error / bound : HUGE_VAL);
    }
  });
  return worst;
}

TEST(MinmaxCodec, size_is_exactly_the_headers_and_bits_times_elements) {
  for (const int bits : kWidths) {
    for (const std::uint32_t bucket_size : kBucketSizes) {
      const MinmaxCodec codec(bits, bucket_size);
      for (std::size_t n = 0; n < 300; ++n) {
        const std::size_t buckets = (n + bucket_size - 1) / bucket_size;
        const std::size_t expected = 8 * buckets + (n * static_cast<std::size_t>(bits) + 7) / 8;
        ASSERT_EQ(codec.max_encoded_bytes(n), expected) << bits << " " << bucket_size << " " << n;
        ASSERT_EQ(encode(codec, std::vector<float>(n, 1.0f)).size(), expected);
      }
    }
  }
}

// QNCCL sent 3 bits as 4 and 5, 6, 7 bits as 8.
TEST(MinmaxCodec, odd_widths_take_their_own_bits) {
  for (const int bits : {3, 5, 6, 7}) {
    const MinmaxCodec codec(bits, 1024);
    EXPECT_EQ(codec.max_encoded_bytes(1 << 20), (1u << 10) * 8 + (1u << 17) * static_cast<unsigned>(bits));
  }
}

TEST(MinmaxCodec, every_element_is_within_the_bound) {
  on_every_simd([&] {
    for (const ValueFamily& family : finite_families()) {
      const std::vector<float> all = family.values(66000, 11);
      for (const int bits : kWidths) {
        for (const std::uint32_t bucket_size : kBucketSizes) {
          const MinmaxCodec codec(bits, bucket_size);
          const std::size_t count = kCounts[(static_cast<std::size_t>(bits) + bucket_size) % kCounts.size()];
          const std::vector<float> x(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
          const std::vector<float> y = decode(codec, encode(codec, x), count);
          ASSERT_LE(worst_error(codec, x, y), 1.0)
              << family.name << ", bits " << bits << ", bucket " << bucket_size << ", count " << count;
        }
      }
    }
  });
}

// The bound is tight: half a step is reached, and the test would notice a step and a half.
TEST(MinmaxCodec, the_error_comes_near_the_bound) {
  for (const int bits : {1, 2, 4, 8}) {
    const MinmaxCodec codec(bits, 1024);
    const std::vector<float> x = finite_families()[0].values(65536, 12);
    EXPECT_GT(worst_error(codec, x, decode(codec, encode(codec, x), x.size())), 0.99);
  }
}

// The rounding errors of the difference, the reciprocal and the products add up here; 4 ulp would be too few.
TEST(MinmaxCodec, rounding_errors_that_add_up_are_within_six_ulp) {
  struct Case {
    int bits;
    float maximum, minimum, x;
  };
  for (const Case& c : {Case{3, 0x1.ffdbe6p+0f, -0x1.730ab6p+0f, 0x1.c0cb68p+0f},
                        Case{4, 0x1.cf8edp+0f, -0x1.f062c2p+0f, 0x1.af8f44p+0f},
                        Case{5, 0x1.e0d8ccp+0f, -0x1.fa897p+0f, 0x1.b111f6p+0f},
                        Case{7, 0x1.fe652cp+0f, -0x1.f89526p+0f, 0x1.e26c58p+0f},
                        Case{8, 0x1.fc4e7cp+0f, -0x1.ffa9f2p+0f, 0x1.ea4e94p+0f}}) {
    const MinmaxCodec codec(c.bits, 1024);
    const std::vector<float> x = {c.maximum, c.minimum, c.x};
    const float y = decode(codec, encode(codec, x), 3)[2];
    const double half_unit = (static_cast<double>(c.maximum) - c.minimum) / ((1 << c.bits) - 1) / 2;
    const double ulps = (std::fabs(static_cast<double>(y) - c.x) - half_unit) / 0x1p-23;
    EXPECT_GT(ulps, 4.0) << c.bits;
    EXPECT_LE(ulps, 6.0) << c.bits;
  }
}

// The rule in its plainest form, in double: every code is the nearest one, or next to it at a tie.
TEST(MinmaxCodec, agrees_with_a_naive_model_in_double) {
  const std::vector<float> x = finite_families()[0].values(10000, 13);
  for (const int bits : kWidths) {
    const MinmaxCodec codec(bits, 500);
    const std::vector<float> y = decode(codec, encode(codec, x), x.size());
    each_bucket(x.size(), 500, [&](std::size_t begin, std::size_t end) {
      const double low = *std::min_element(&x[begin], &x[begin] + (end - begin));
      const double high = *std::max_element(&x[begin], &x[begin] + (end - begin));
      const double unit = (high - low) / (std::ldexp(1.0, bits) - 1);
      for (std::size_t i = begin; i < end; ++i) {
        const double exact = (x[i] - low) / unit;
        const double code = std::floor(exact + 0.5);
        const double distance_to_tie = std::fabs(exact + 0.5 - std::round(exact + 0.5));
        if (distance_to_tie > 0.02) {
          ASSERT_NEAR(y[i], low + code * unit, 1e-5 * std::max(unit, 0.1)) << bits;
        }
      }
    });
  }
}

// QNCCL's largest code could become 2^bits: at 8 bits the maximum became the minimum, below that the
// carry changed its neighbour.
TEST(MinmaxCodec, the_maximum_neither_wraps_nor_carries_into_its_neighbour) {
  Random random(14);
  std::vector<float> x(1 << 18);
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    for (int round = 0; round < 8; ++round) {
      for (float& value : x) {
        const bool at_end = random() % 4 == 0;
        value = at_end ? 1.0f : static_cast<float>(random() >> 8) * 0x1p-24f;
      }
      const float offset = std::ldexp(kernels::uniform(random, -1.0f, 1.0f), static_cast<int>(random() % 24));
      const float scale = std::ldexp(kernels::uniform(random, 0.5f, 1.0f), static_cast<int>(random() % 60) - 30);
      for (float& value : x) value = (value + offset) * scale;
      const MinmaxCodec codec(bits, 16 + static_cast<std::uint32_t>(random() % 64));
      ASSERT_LE(worst_error(codec, x, decode(codec, encode(codec, x), x.size())), 1.0) << "bits " << bits;
    }
  }
}

TEST(MinmaxCodec, a_bucket_that_is_not_finite_decodes_to_nan_and_its_neighbours_are_untouched) {
  constexpr std::size_t kBucket = 100;
  const std::vector<float> clean = finite_families()[0].values(1000, 15);
  on_every_simd([&] {
    for (const int bits : kWidths) {
      const MinmaxCodec codec(bits, kBucket);
      const std::vector<float> expected = decode(codec, encode(codec, clean), clean.size());
      for (const float poison : {std::nanf(""), -std::nanf("5"), HUGE_VALF, -HUGE_VALF}) {
        for (const std::size_t at : {0u, 299u, 300u, 350u, 999u}) {
          std::vector<float> x = clean;
          x[at] = poison;
          const std::vector<float> y = decode(codec, encode(codec, x), x.size());
          for (std::size_t i = 0; i < x.size(); ++i) {
            if (i / kBucket == at / kBucket) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), 0x7FC00000u) << bits << " " << at << " " << i;
            } else {
              ASSERT_EQ(y[i], expected[i]) << bits << " " << at << " " << i;
            }
          }
        }
      }
    }
  });
}

TEST(MinmaxCodec, large_finite_sums_are_not_mistaken_for_infinity) {
  const std::vector<float> x(1024, 3e38f);
  const MinmaxCodec codec(8, 1024);
  EXPECT_EQ(decode(codec, encode(codec, x), x.size()), x);
}

TEST(MinmaxCodec, equal_values_come_back_exactly) {
  for (const float value : {0.0f, 1.0f, -0.1f, 1e-9f, 1e-40f, -3e38f, 0x1p-149f}) {
    const std::vector<float> x(50, value);
    for (const int bits : kWidths) {
      const MinmaxCodec codec(bits, 20);
      EXPECT_EQ(decode(codec, encode(codec, x), x.size()), x) << value << " " << bits;
    }
  }
}

TEST(MinmaxCodec, any_other_size_is_corrupt_data) {
  const MinmaxCodec codec(5, 10);
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
TEST(MinmaxCodec, random_bytes_of_the_right_size_decode_within_bounds) {
  Random random(16);
  on_every_simd([&] {
    for (int round = 0; round < 2000; ++round) {
      const MinmaxCodec codec(kWidths[random() % kWidths.size()], 1 + static_cast<std::uint32_t>(random() % 200));
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

// However the run is cut, only the index in the tensor counts.
TEST(MinmaxCodec, stochastic_rounding_depends_on_key_rank_and_place_and_stays_within_its_bound) {
  const std::vector<float> x = finite_families()[0].values(3000, 19);
  for (const int bits : kWidths) {
    const MinmaxCodec codec(bits, 100, true);
    const auto bytes_of = [&](std::span<const float> source, const RandomStream& random) {
      ByteVector bytes(codec.max_encoded_bytes(source.size()));
      codec.encode(source, bytes, random);
      return bytes;
    };
    const RandomStream random{.key = 5, .first_element = 1000, .rank = 1, .world = 4};
    const ByteVector whole = bytes_of(x, random);
    const std::vector<float> y = decode(codec, whole, x.size());
    ASSERT_LE(worst_error(codec, x, y), 1.0) << bits;
    const std::span<const float> rest = std::span(x).subspan(1600);
    const std::vector<float> rest_y = decode(codec, bytes_of(rest, {5, 2600, 1, 4}), rest.size());
    ASSERT_TRUE(std::equal(rest_y.begin(), rest_y.end(), y.begin() + 1600)) << bits;
    for (const RandomStream& other :
         {RandomStream{6, 1000, 1, 4}, RandomStream{5, 1001, 1, 4}, RandomStream{5, 1000, 2, 4}}) {
      EXPECT_NE(bytes_of(x, other), whole) << bits;
    }
  }
}

TEST(MinmaxCodec, decode_add_is_decode_and_one_rounded_sum) {
  const std::vector<float> x = finite_families()[0].values(3000, 17);
  const std::vector<float> addend = finite_families()[0].values(3000, 18);
  for (const int bits : kWidths) {
    const MinmaxCodec codec(bits, 128);
    const ByteVector bytes = encode(codec, x);
    const std::vector<float> y = decode(codec, bytes, x.size());
    std::vector<float> sum(x.size());
    ASSERT_TRUE(codec.decode_add(bytes, addend, sum).ok());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], addend[i] + y[i]);
  }
}

}  // namespace
}  // namespace qccl
