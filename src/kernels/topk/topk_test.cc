// Every instruction set against the reference, both ways; the sent elements against a sort; damage is refused.
#include "kernels/topk/topk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

constexpr std::byte kCanary{0xA5};
constexpr std::uint32_t kKept[] = {1, 2, 5, 41, 64, 205, 410, 1024, 2048, 4095, 4096};

using ByteVector = std::vector<std::byte>;

ByteVector encoded(TopkFormat format, const std::vector<float>& values, std::size_t shift = 0) {
  ByteVector memory(shift + topk_encoded_bytes(format, values.size()) + 1, kCanary);
  topk_encode(format, values.data(), values.size(), memory.data() + shift);
  EXPECT_EQ(memory.back(), kCanary);
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(memory[i], kCanary);
  return {memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 1};
}

std::vector<float> decoded(TopkFormat format, const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n + 1, -7.0f);
  EXPECT_TRUE(topk_decode(format, bytes.data(), values.data(), n));
  EXPECT_EQ(values.back(), -7.0f);
  values.pop_back();
  return values;
}

// The same on all targets.
bool decodes(TopkFormat format, const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n);
  const auto decode = [&] { return topk_decode(format, bytes.data(), values.data(), n); };
  const bool expected = by_reference(decode);
  on_every_simd([&] {
    EXPECT_EQ(decode(), expected);
    EXPECT_EQ(topk_decode_add(format, bytes.data(), values.data(), values.data(), n), expected);
  });
  return expected;
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

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

void expect_same_as_reference(TopkFormat format, const std::vector<float>& values, std::size_t shift) {
  const ByteVector bytes = by_reference([&] { return encoded(format, values); });
  on_every_simd([&] { ASSERT_EQ(encoded(format, values, shift), bytes); });
}

TEST(Topk, every_target_equals_the_reference) {
  for (const ValueFamily& family : families()) {
    for (const std::uint32_t kept : kKept) {
      for (const std::size_t n : {0, 1, 255, 256, 4096, 3 * 4096 + 77}) {
        SCOPED_TRACE(family.name + ", kept " + std::to_string(kept) + ", n " + std::to_string(n));
        expect_same_as_reference({kept, (kept + n) % 2 == 0}, family.values(n, 3), n % 5);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The results of topk_decode() and topk_decode_add() for the payload that begins at bytes[shift], bit by bit; the
// second sum in place. All floats lie `shift` floats into their memory.
std::vector<std::uint32_t> all_decoded(TopkFormat format, const ByteVector& bytes, const std::vector<float>& addend,
                                       std::size_t shift = 0) {
  const std::byte* payload = bytes.data() + shift;
  const std::size_t n = addend.size();
  std::vector<std::uint32_t> bits;
  std::vector<float> shifted(shift + n + 1, -7.0f), memory(shifted);
  std::copy(addend.begin(), addend.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
  const auto keep = [&](bool ok, const std::vector<float>& values) {
    EXPECT_TRUE(ok);
    for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(values[i], -7.0f);
    EXPECT_EQ(values.back(), -7.0f);
    for (std::size_t i = shift; i < shift + n; ++i) bits.push_back(bits_of(values[i]));
  };
  float* target = memory.data() + shift;
  keep(topk_decode(format, payload, target, n), memory);
  keep(topk_decode_add(format, payload, shifted.data() + shift, target, n), memory);
  keep(topk_decode_add(format, payload, shifted.data() + shift, shifted.data() + shift, n), shifted);
  return bits;
}

TEST(Topk, every_target_decodes_as_the_reference) {
  const auto all = families();
  for (const std::uint32_t kept : kKept) {
    for (const std::size_t n : {1, 17, 255, 4096, 3 * 4096 + 77}) {
      for (const bool int8_values : {false, true}) {
        SCOPED_TRACE("kept " + std::to_string(kept) + ", n " + std::to_string(n));
        const TopkFormat format{kept, int8_values};
        const ValueFamily& family = all[(kept + n) % all.size()];
        const ByteVector bytes = encoded(format, family.values(n, 12));
        const std::vector<float> addend = families_with_nonfinite()[0].values(n, 13);
        const auto expected = by_reference([&] { return all_decoded(format, bytes, addend); });
        on_every_simd([&] { ASSERT_EQ(all_decoded(format, bytes, addend), expected); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Topk, every_target_equals_the_reference_at_every_tail) {
  const auto all = families();
  for (std::size_t n = 1; n <= 300; ++n) {
    for (const std::uint32_t kept : {41u, 1000u}) {
      SCOPED_TRACE("kept " + std::to_string(kept) + ", n " + std::to_string(n));
      expect_same_as_reference({kept, false}, all[n % all.size()].values(4096 + n, 4), 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Topk, every_target_decodes_as_the_reference_at_every_tail) {
  const auto all = families();
  for (std::size_t n = 1; n <= 300; ++n) {
    for (const std::size_t whole : {0, 4096}) {
      const TopkFormat format{n % 2 == 0 ? 41u : 1000u, n % 3 == 0};
      SCOPED_TRACE("n " + std::to_string(whole + n));
      const ByteVector bytes = encoded(format, all[n % all.size()].values(whole + n, 15));
      const std::vector<float> addend = families_with_nonfinite()[0].values(whole + n, 16);
      const auto expected = by_reference([&] { return all_decoded(format, bytes, addend); });
      on_every_simd([&] { ASSERT_EQ(all_decoded(format, bytes, addend), expected); });
      if (HasFatalFailure()) return;
    }
  }
}

// Payload and floats off the boundaries of vectors, at the very end of their memory.
TEST(Topk, alignment_does_not_matter) {
  constexpr std::size_t kCount = 4096 + 1001;
  const std::vector<float> values = finite_families()[0].values(kCount + 15, 17);
  on_every_simd([&] {
    for (const bool int8_values : {false, true}) {
      const TopkFormat format{205, int8_values};
      for (std::size_t shift = 1; shift <= 15; shift += 2) {
        const std::vector<float> own(values.begin() + static_cast<std::ptrdiff_t>(shift),
                                     values.begin() + static_cast<std::ptrdiff_t>(shift + kCount));
        const ByteVector bytes = by_reference([&] { return encoded(format, own); });
        ByteVector moved(shift + bytes.size() + 1, kCanary);
        topk_encode(format, values.data() + shift, kCount, moved.data() + shift);
        ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift)));
        const auto expected = by_reference([&] { return all_decoded(format, bytes, own); });
        ASSERT_EQ(all_decoded(format, moved, own, shift), expected);
      }
    }
  });
}

// The indices of the k largest magnitudes of a chunk, the first of equals, by a sort.
std::vector<std::size_t> largest(const std::vector<float>& x, std::size_t begin, std::size_t end, std::size_t k) {
  std::vector<std::size_t> places(end - begin);
  std::iota(places.begin(), places.end(), begin);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  places.resize(k);
  return places;
}

TEST(Topk, exactly_the_k_largest_arrive_bit_for_bit_and_all_else_is_zero) {
  for (const ValueFamily& family : finite_families()) {
    for (const std::uint32_t kept : kKept) {
      const TopkFormat format{kept, false};
      const std::vector<float> x = family.values(4096 + 1000, 5);
      const std::vector<float> y = decoded(format, encoded(format, x), x.size());
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

// ||x - y||^2 <= (1 - k / n) ||x||^2, for int8 values plus k (scale / 2)^2.
TEST(Topk, the_error_is_no_more_than_the_share_that_is_not_sent) {
  for (const ValueFamily& family : finite_families()) {
    for (const std::uint32_t kept : kKept) {
      for (const bool int8_values : {false, true}) {
        for (const std::size_t n : {1, 1000, 4096}) {
          const TopkFormat format{kept, int8_values};
          std::vector<float> x = family.values(n, 6);
          const std::vector<float> y = decoded(format, encoded(format, x), n);
          const double most = std::fabs(
              *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
          const auto k = static_cast<double>(topk_kept(format, n));
          const double half_step = int8_values ? std::max(most / 127, 0x1p-126) / 2 * (1 + 1e-5) : 0;
          const double bound = (1 - k / static_cast<double>(n)) * squared_norm(x) + k * half_step * half_step;
          double error = 0;
          for (std::size_t i = 0; i < n; ++i) error += std::pow(static_cast<double>(x[i]) - y[i], 2);
          ASSERT_LE(error, bound * (1 + 1e-9)) << family.name << ", kept " << kept << ", n " << n << " " << int8_values;
        }
      }
    }
  }
}

TEST(Topk, int8_values_are_within_half_a_step_and_finite) {
  for (const ValueFamily& family : finite_families()) {
    const TopkFormat format{4096, true};
    const std::vector<float> x = family.values(4096, 7);
    const std::vector<float> y = decoded(format, encoded(format, x), x.size());
    double most = 0;
    for (const float v : x) most = std::max(most, std::fabs(static_cast<double>(v)));
    const double step = std::max(most / 127, 0x1p-126);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(std::isfinite(y[i]));
      ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), step / 2 * (1 + 1e-5)) << family.name << " " << i;
    }
  }
}

TEST(Topk, a_chunk_with_an_element_that_is_not_finite_decodes_to_nan_as_a_whole) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const bool int8_values : {false, true}) {
      const TopkFormat format{41, int8_values};
      std::vector<float> x = finite_families()[0].values(3 * 4096, 8);
      x[4096 + 17] = bad;
      on_every_simd([&] {
        const ByteVector bytes = encoded(format, x);
        const std::vector<float> y = decoded(format, bytes, x.size());
        std::vector<float> sum(x.size(), 1.0f);
        EXPECT_TRUE(topk_decode_add(format, bytes.data(), sum.data(), sum.data(), sum.size()));
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
  const TopkFormat format{41, false};
  const std::vector<float> x = finite_families()[0].values(5000, 9);
  const ByteVector bytes = encoded(format, x);
  const std::vector<float> y = decoded(format, bytes, x.size());
  std::vector<float> addend(x.size(), -0.0f);
  addend[1] = std::bit_cast<float>(0x7F800001u);
  std::vector<float> sum(x.size());
  EXPECT_TRUE(topk_decode_add(format, bytes.data(), addend.data(), sum.data(), sum.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] == 0) {
      ASSERT_EQ(bits_of(sum[i]), bits_of(addend[i])) << i;
    } else {
      ASSERT_EQ(sum[i], addend[i] + y[i]) << i;
    }
  }
  EXPECT_TRUE(topk_decode_add(format, bytes.data(), addend.data(), addend.data(), addend.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits_of(addend[i]), bits_of(sum[i])) << i;
}

TEST(Topk, layout_of_a_chunk) {
  const std::vector<float> x = {0.5f, -4.0f, 1.0f, 0.25f, 2.0f, 0.0f};
  on_every_simd([&] {
    const ByteVector floats = encoded({2048, false}, x);  // 3 of 6
    ASSERT_EQ(floats.size(), 3u * 4 + 5);
    float values[3];
    std::memcpy(values, floats.data(), sizeof(values));
    EXPECT_EQ(values[0], -4.0f);
    EXPECT_EQ(values[1], 1.0f);
    EXPECT_EQ(values[2], 2.0f);
    const int places[] = {0x01, 0x20, 0x00, 0x04, 0x00};  // 1, 2, 4
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(std::to_integer<int>(floats[12 + i]), places[i]) << i;
    const ByteVector codes = encoded({2048, true}, x);
    ASSERT_EQ(codes.size(), 4u + 3 + 5);
    float scale;
    std::memcpy(&scale, codes.data(), sizeof(scale));
    EXPECT_EQ(scale, 4.0f / 127);
    EXPECT_EQ(static_cast<std::int8_t>(codes[4]), -127);
    EXPECT_EQ(static_cast<std::int8_t>(codes[5]), 32);
    EXPECT_EQ(static_cast<std::int8_t>(codes[6]), 64);
  });
}

// ---- Hostile bytes.

TEST(Topk, places_that_do_not_rise_or_lie_outside_are_refused) {
  const TopkFormat format{41, false};
  const std::size_t n = 4096 + 1000;  // 41 and 11 indices
  const ByteVector good = encoded(format, finite_families()[0].values(n, 10));
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
  EXPECT_FALSE(decodes(format, with(second + 15, {0xE8, 0x03}), n)) << "place 1000 of 1000";
  EXPECT_TRUE(decodes(format, with(second + 15, {0xE7, 0x03}), n)) << "place 999 of 1000";
  EXPECT_FALSE(decodes(format, with(second + 15, {0xE7, 0x13}), n)) << "unused bits";
}

TEST(Topk, any_place_that_does_not_rise_is_refused) {
  const TopkFormat format{100, false};
  ByteVector bytes = encoded(format, finite_families()[0].values(4096, 14));
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

TEST(Topk, random_bytes_do_no_harm) {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    const TopkFormat format{kKept[random() % 5], random() % 2 == 0};
    const std::size_t n = 1 + random() % 9000;
    ByteVector bytes = encoded(format, finite_families()[0].values(n, random()));
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    decodes(format, bytes, n);
  }
}

}  // namespace
}  // namespace qccl::kernels
