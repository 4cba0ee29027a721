// The kernels' contract; the sent elements against a sort; damage is refused.
#include "kernels/topk/topk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"

namespace qccl::kernels {
namespace {

constexpr TopkValues kValues[] = {TopkValues::float32, TopkValues::int8, TopkValues::int2};
constexpr std::uint32_t kKept[] = {1, 2, 5, 41, 64, 205, 410, 1024, 2048, 4095, 4096};

// Values that make the selection hard: ties, magnitudes that change from chunk to chunk, the largest all in one place.
std::vector<ValueFamily> families() {
  std::vector<ValueFamily> all = families_with_nonfinite();
  all.push_back({"one NaN in the second chunk",
                 [](Random& r, std::size_t i) { return i == 5000 ? std::nanf("") : uniform(r, -1.0f, 1.0f); }});
  all.push_back({"few values", [](Random& r, std::size_t) { return static_cast<float>(r() % 5) - 2.0f; }});
  all.push_back({"largest side by side",
                 [](Random& r, std::size_t i) { return (i % 4096 < 60 ? 10.0f : 1.0f) * uniform(r, -1.0f, 1.0f); }});
  all.push_back({"largest in one lane",
                 [](Random& r, std::size_t i) { return (i % 16 == 3 ? 10.0f : 1.0f) * uniform(r, -1.0f, 1.0f); }});
  all.push_back({"grows from chunk to chunk", [](Random& r, std::size_t i) {
                   return std::ldexp(uniform(r, -1.0f, 1.0f), static_cast<int>(i / 4096 * 3));
                 }});
  all.push_back({"shrinks from chunk to chunk", [](Random& r, std::size_t i) {
                   return std::ldexp(uniform(r, -1.0f, 1.0f), -static_cast<int>(i / 4096 * 3));
                 }});
  all.push_back({"rising", [](Random&, std::size_t i) { return static_cast<float>(i % 4096); }});
  all.push_back({"neighbours in the last bit", [](Random&, std::size_t i) {
                   return std::bit_cast<float>(0x3F800000u + static_cast<std::uint32_t>(i * 2654435761u % 4096));
                 }});
  return all;
}

struct TopkKernel : FixedSizeKernel<topk_encoded_bytes, topk_decode> {
  using Format = TopkFormat;
  static constexpr bool kAddsEverywhere = false;
  static std::vector<std::size_t> counts() { return {4096, 3 * 4096 + 77}; }
  static std::vector<ValueFamily> families() { return qccl::kernels::families(); }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const std::uint32_t kept : kKept) {
      for (const TopkValues values : kValues) formats.push_back({kept, values});
    }
    return formats;
  }
  static std::string text(Format format) {
    return "kept " + std::to_string(format.kept) +
           std::array{", float32", ", int8", ", int2"}[static_cast<std::size_t>(format.values)];
  }
  static constexpr auto encode = topk_encode;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Topk, CodecKernelContract, TopkKernel);

std::vector<float> decoded(TopkFormat format, const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n);
  EXPECT_TRUE(topk_decode(format, bytes.data(), nullptr, values.data(), n));
  return values;
}

// The same on all targets.
bool decodes(TopkFormat format, const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n);
  const auto decode = [&] { return topk_decode(format, bytes.data(), nullptr, values.data(), n); };
  const bool expected = by_reference(decode);
  on_every_simd([&] {
    EXPECT_EQ(decode(), expected);
    EXPECT_EQ(topk_decode(format, bytes.data(), values.data(), values.data(), n), expected);
  });
  return expected;
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

// The indices of the k largest magnitudes of a chunk, the first of equals, by a sort.
std::vector<std::size_t> largest(const std::vector<float>& x, std::size_t begin, std::size_t end, std::size_t k) {
  std::vector<std::size_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  indices.resize(k);
  return indices;
}

TEST(Topk, exactly_the_k_largest_arrive_bit_for_bit_and_all_else_is_zero) {
  for (const ValueFamily& family : finite_families()) {
    for (const std::uint32_t kept : kKept) {
      const TopkFormat format{kept};
      const std::vector<float> x = family.values(4096 + 1000, 5);
      const std::vector<float> y = decoded(format, encoded<TopkKernel>(format, x), x.size());
      std::vector<bool> sent(x.size());
      for (std::size_t begin = 0; begin < x.size(); begin += kTopkChunk) {
        const std::size_t end = std::min(begin + kTopkChunk, x.size());
        const std::size_t k = topk_kept(format, end - begin);
        EXPECT_EQ(k, static_cast<std::size_t>(std::ceil(kept * static_cast<double>(end - begin) / 4096)));
        for (const std::size_t i : largest(x, begin, end, k)) sent[i] = true;
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(bits_of(y[i]), sent[i] ? bits_of(x[i]) : 0u) << family.name << ", kept " << kept << ", " << i;
      }
    }
  }
}

double squared_norm(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0, [](double sum, double v) { return sum + v * v; });
}

// What one sent element is off by at most.
double half_step_of(TopkValues values, double most) {
  if (values == TopkValues::float32 || (values == TopkValues::int2 && most == 0)) return 0;
  const double step = values == TopkValues::int8 ? std::max(most / 127, 0x1p-126) : 2 * std::max(most / 3, 0x1p-126);
  return step / 2 * (1 + 1e-5);
}

// ||x - y||^2 <= (1 - k / n) ||x||^2, for int8 values plus k (scale / 2)^2, for int2 k scale^2. What is sent is off by
// half a step at most.
TEST(Topk, the_error_is_no_more_than_the_share_that_is_not_sent) {
  for (const ValueFamily& family : finite_families()) {
    for (const std::uint32_t kept : kKept) {
      for (const TopkValues values : kValues) {
        for (const std::size_t n : {1, 1000, 4096}) {
          const TopkFormat format{kept, values};
          std::vector<float> x = family.values(n, 6);
          const std::vector<float> y = decoded(format, encoded<TopkKernel>(format, x), n);
          const double most = std::fabs(
              *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
          const auto k = static_cast<double>(topk_kept(format, n));
          const double half_step = half_step_of(values, most);
          const double bound = (1 - k / static_cast<double>(n)) * squared_norm(x) + k * half_step * half_step;
          double error = 0;
          for (std::size_t i = 0; i < n; ++i) {
            const double each = std::fabs(static_cast<double>(x[i]) - y[i]);
            error += each * each;
            if (y[i] != 0 || kept == kTopkChunk) ASSERT_LE(each, half_step) << family.name << " " << i;
          }
          ASSERT_LE(error, bound * (1 + 1e-9))
              << family.name << ", kept " << kept << ", n " << n << TopkKernel::text(format);
        }
      }
    }
  }
}

TEST(Topk, a_chunk_with_an_element_that_is_not_finite_decodes_to_nan_as_a_whole) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const TopkValues values : kValues) {
      const TopkFormat format{41, values};
      std::vector<float> x = finite_families()[0].values(3 * 4096, 8);
      x[4096 + 17] = bad;
      on_every_simd([&] {
        const ByteVector bytes = encoded<TopkKernel>(format, x);
        const std::vector<float> y = decoded(format, bytes, x.size());
        std::vector<float> sum(x.size(), 1.0f);
        EXPECT_TRUE(topk_decode(format, bytes.data(), sum.data(), sum.data(), sum.size()));
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool is_bad = i / 4096 == 1;
          ASSERT_EQ(std::isnan(y[i]), is_bad) << i;
          ASSERT_EQ(std::isnan(sum[i]), is_bad) << i;
          ASSERT_EQ(bits_of(y[i]) == 0x7FC00000u, is_bad) << i;
        }
      });
    }
  }
}

TEST(Topk, adding_touches_only_what_was_sent) {
  const TopkFormat format{41};
  const std::vector<float> x = finite_families()[0].values(5000, 9);
  const ByteVector bytes = encoded<TopkKernel>(format, x);
  const std::vector<float> y = decoded(format, bytes, x.size());
  std::vector<float> addend(x.size(), -0.0f);
  addend[1] = std::bit_cast<float>(0x7F800001u);
  std::vector<float> sum(x.size());
  EXPECT_TRUE(topk_decode(format, bytes.data(), addend.data(), sum.data(), sum.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] == 0) {
      ASSERT_EQ(bits_of(sum[i]), bits_of(addend[i])) << i;
    } else {
      ASSERT_EQ(sum[i], addend[i] + y[i]) << i;
    }
  }
  EXPECT_TRUE(topk_decode(format, bytes.data(), addend.data(), addend.data(), addend.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits_of(addend[i]), bits_of(sum[i])) << i;
}

// 3 of 6: elements 1, 2 and 4. int8: the scale is 4 / 127 = 3D010204; int2: 4 / 3 = 3FAAAAAB.
TEST(Topk, layout_of_a_chunk) {
  const FloatVector x = {0.5f, -4.0f, 1.0f, 0.25f, 2.0f, 0.0f};
  expect_bytes<TopkKernel>({2048}, x,
                           {0, 0, 0x80, 0xC0, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0x01, 0x20, 0x00, 0x04, 0x00});
  expect_bytes<TopkKernel>({2048, TopkValues::int8}, x,
                           {0x04, 0x02, 0x01, 0x3D, 0x81, 32, 64, 0x01, 0x20, 0x00, 0x04, 0x00});
  expect_bytes<TopkKernel>({2048, TopkValues::int2}, x, {0xAB, 0xAA, 0xAA, 0x3F, 0x03, 0x01, 0x20, 0x00, 0x04, 0x00});
}

// ---- Hostile bytes.

TEST(Topk, indices_that_do_not_rise_or_lie_outside_are_refused) {
  const TopkFormat format{41};
  const std::size_t n = 4096 + 1000;  // 41 and 11 indices
  const ByteVector good = encoded<TopkKernel>(format, finite_families()[0].values(n, 10));
  ASSERT_TRUE(decodes(format, good, n));
  const std::size_t first = 41 * 4, second = topk_chunk_bytes(format, 4096) + 11 * 4;
  const auto with = [&](std::size_t at, std::initializer_list<int> bytes) {
    ByteVector bad = good;
    for (const int byte : bytes) bad[at++] = static_cast<std::byte>(byte);
    return bad;
  };
  EXPECT_FALSE(decodes(format, with(first, {0xFF, 0xFF, 0xFF}), n)) << "the same twice";
  EXPECT_FALSE(decodes(format, with(first, {0x05, 0x40, 0x00}), n)) << "falling";
  EXPECT_FALSE(decodes(format, with(first, {0xFF, 0x0F, 0x00}), n)) << "falling";
  EXPECT_FALSE(decodes(format, with(second + 15, {0xE8, 0x03}), n)) << "index 1000 of 1000";
  EXPECT_TRUE(decodes(format, with(second + 15, {0xE7, 0x03}), n)) << "index 999 of 1000";
  EXPECT_FALSE(decodes(format, with(second + 15, {0xE7, 0x13}), n)) << "unused bits";
}

TEST(Topk, any_index_that_does_not_rise_is_refused) {
  const TopkFormat format{100};
  ByteVector bytes = encoded<TopkKernel>(format, finite_families()[0].values(4096, 14));
  for (std::size_t i = 0; i + 1 < 100; i += 2) {
    std::byte* pair = bytes.data() + 100 * 4 + i / 2 * 3;
    std::byte before[3];
    std::memcpy(before, pair, sizeof(before));
    const std::uint32_t first =
        std::to_integer<std::uint32_t>(before[0]) | (std::to_integer<std::uint32_t>(before[1]) & 15u) << 8;
    pair[1] = static_cast<std::byte>((first >> 8) | (first & 15u) << 4);  // makes the second equal to the first
    pair[2] = static_cast<std::byte>(first >> 4);
    EXPECT_FALSE(decodes(format, bytes, 4096)) << i;
    std::memcpy(pair, before, sizeof(before));
    EXPECT_TRUE(decodes(format, bytes, 4096)) << i;
  }
}

}  // namespace
}  // namespace qccl::kernels
