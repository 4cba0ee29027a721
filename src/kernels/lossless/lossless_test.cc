// The kernels' contract; every bit pattern comes back; damage is refused.
#include "kernels/lossless/lossless.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels {
namespace {

std::uint32_t as_bfloat16(std::uint32_t bits) { return bits & 0xFFFF0000u; }
std::uint32_t as_float16(std::uint32_t bits) {
  return reference::widen_exactly(DataType::float16, reference::narrow_exactly(DataType::float16, bits));
}

// Families of values, as float32 and as 16-bit types; bit patterns of no number; and values that steer the choices.
std::vector<ValueFamily> families() {
  std::vector<ValueFamily> all = families_with_nonfinite();
  for (auto cast : {as_bfloat16, as_float16}) {
    for (const ValueFamily& family : families_with_nonfinite()) {
      all.push_back(
          {family.name + (cast == as_float16 ? " as float16" : " as bfloat16"), [=](Random& r, std::size_t i) {
             return std::bit_cast<float>(cast(std::bit_cast<std::uint32_t>(family.draw(r, i))));
           }});
    }
  }
  const auto add = [&](const char* name, auto bits) {
    all.push_back(
        {name, [=](Random& r, std::size_t i) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits(r, i))); }});
  };
  add("any bits", [](Random& r, std::size_t) { return r(); });
  add("any bfloat16", [](Random& r, std::size_t) { return r() << 16; });
  add("any float16", [](Random& r, std::size_t) {
    return reference::widen_exactly(DataType::float16, static_cast<std::uint16_t>(r()));
  });
  add("any with 13 zero bits", [](Random& r, std::size_t) { return r() << 13; });
  add("NaN of any payload", [](Random& r, std::size_t) { return r() | 0x7F800001u; });
  add("a word that differs", [](Random&, std::size_t i) { return i % 1024 == 1000 ? 0x80000000u : 0u; });
  add("all the same", [](Random&, std::size_t) { return 0xDEADBEEFu; });
  add("few zeros", [](Random& r, std::size_t) { return r() % 40 == 0 ? 0u : 0x3F000000u + (r() & 0x1FFFFFFu); });
  add("many zeros", [](Random& r, std::size_t) { return r() % 3 != 0 ? 0u : 0x3F000000u + (r() & 0x1FFFFFFu); });
  add("smallest exponents", [](Random& r, std::size_t) { return r() & 0x81FFFFFFu; });
  add("largest exponents", [](Random& r, std::size_t) { return 0x7E000000u | r(); });
  add("changes from block to block", [](Random& r, std::size_t i) { return r() >> (i / 1024 * 5 % 32); });
  return all;
}

struct LosslessKernel : CodecKernel {
  struct Format {};
  static constexpr std::size_t kMostTail = 1300;
  static constexpr std::size_t kFloatAlignment = 1;
  static std::vector<std::size_t> counts() {
    return {0, 1, 2, 3, 7, 8, 63, 64, 65, 500, 1023, 1024, 1025, 3000, 9 * 1024};
  }
  static std::vector<ValueFamily> families() { return qccl::kernels::families(); }
  static std::vector<Format> formats() { return {{}}; }
  static std::string text(Format) { return "lossless"; }
  static std::size_t max_bytes(Format, std::size_t n) { return lossless_max_bytes(n); }
  static std::size_t encode(Format, const float* source, std::size_t n, std::byte* target) {
    return lossless_encode(source, n, target);
  }
  static bool decode(Format, const std::byte* source, std::size_t bytes, const float* addend, float* target,
                     std::size_t n) {
    return lossless_decode(source, bytes, addend, target, n);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Lossless, CodecKernelContract, LosslessKernel);

ByteVector encoded(const FloatVector& values) { return kernels::encoded<LosslessKernel>({}, values); }

std::vector<float> floats_of(const std::vector<std::uint32_t>& bits) {
  std::vector<float> values(bits.size());
  if (!bits.empty()) std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

// The decoded words; empty if decoding fails.
std::vector<std::uint32_t> decoded(const ByteVector& bytes, std::size_t n) {
  std::vector<float> values(n);
  const Guarded<std::byte> source = Guarded<std::byte>::input(bytes, 0);
  if (!lossless_decode(source.data(), bytes.size(), nullptr, values.data(), n)) return {};
  return bits_of(values);
}

TEST(Lossless, every_bit_comes_back) {
  for (const ValueFamily& family : families()) {
    for (const std::size_t n : {1, 64, 1023, 3000}) {
      const std::vector<float> values = family.values(n, 5);
      on_every_simd([&] { ASSERT_EQ(decoded(encoded(values), n), bits_of(values)) << family.name << " " << n; });
    }
  }
}

TEST(Lossless, all_patterns_of_16_bits_come_back_in_16_bits_and_a_byte_a_block) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    std::vector<std::uint32_t> words(65536);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = reference::widen_exactly(type, static_cast<std::uint16_t>(i * 40503));  // every value, in mixed order
    }
    on_every_simd([&] {
      const ByteVector bytes = encoded(floats_of(words));
      EXPECT_LE(bytes.size(), 2 * words.size() + words.size() / kLosslessBlock) << to_string(type);
      EXPECT_EQ(decoded(bytes, words.size()), words) << to_string(type);
    });
  }
}

TEST(Lossless, random_bits_take_a_byte_a_block_more) {
  Random random(3);
  std::vector<std::uint32_t> words(50'000);
  for (auto& word : words) word = random();
  on_every_simd([&] { EXPECT_EQ(encoded(floats_of(words)).size(), 4 * words.size() + 49); });
}

double share_of(const ValueFamily& family, double bits, std::uint32_t (*cast)(std::uint32_t)) {
  auto words = bits_of(family.values(1 << 16, 9));
  for (auto& word : words) word = cast(word);
  return 8.0 * static_cast<double>(encoded(floats_of(words)).size()) / (bits * static_cast<double>(words.size()));
}

// The promise for normally distributed data; the entropy of its exponents allows 0.659, 0.829 and 0.847.
TEST(Lossless, normal_data_takes_two_thirds_of_bfloat16_and_five_sixths_of_float32_and_float16) {
  for (const float scale : {1.0f, 1.3f, 1.7f, 1e-3f, 3e8f}) {
    const ValueFamily normal{"", [=](Random& r, std::size_t) { return scale * std::normal_distribution<float>()(r); }};
    EXPECT_LT(share_of(normal, 16, as_bfloat16), 0.675) << scale;
    EXPECT_LT(share_of(normal, 32, [](std::uint32_t bits) { return bits; }), 0.84) << scale;
    if (scale > 1e4f || scale < 1e-2f) continue;  // out of float16's range
    EXPECT_LT(share_of(normal, 16, as_float16), 0.865) << scale;
  }
}

TEST(Lossless, constant_blocks_take_five_bytes) {
  EXPECT_EQ(encoded(std::vector<float>(4096, 1.5f)).size(), 20u);
  EXPECT_EQ(encoded(std::vector<float>(1025, 0.0f)).size(), 10u);
}

// Byte for byte, as in the table in lossless.h.
TEST(Lossless, layout_of_coded_blocks) {
  on_every_simd([&] {
    // Exponents 127, 127, 128, 129, 200, 0: their mean without the 0 is 142.2, so the base is 141.
    const std::vector<float> values = {1.0f, -1.5f, 2.0f, 4.0f, std::ldexp(1.0f, 73), 1e-45f};
    const ByteVector bytes = encoded(values);
    EXPECT_EQ(bytes.size(), 1 + 4 * values.size());  // plain: 6 words are too few
    EXPECT_EQ(bytes[0], std::byte{1});
    // Many of them, bfloat16: exponents 127, 128, 128, 128 a hundred times; mean 127.75, so the base is 127.
    std::vector<float> many;
    for (int i = 0; i < 100; ++i) many.insert(many.end(), {-1.5f, 2.0f, 2.0f, 3.0f});
    const ByteVector coded = encoded(many);
    ASSERT_EQ(coded.size(), 2u + 400 + 50 + 50);
    EXPECT_EQ(coded[0], std::byte{5});
    EXPECT_EQ(coded[1], std::byte{127});
    EXPECT_EQ(coded[2], std::byte{0x81});  // mantissa 1000000, negative
    EXPECT_EQ(coded[3], std::byte{0x00});
    EXPECT_EQ(coded[5], std::byte{0x80});                                          // mantissa 1000000, positive
    for (std::size_t i = 402; i < 452; ++i) ASSERT_EQ(coded[i], std::byte{0xEE});  // low bits of 0, 1, 1, 1
    for (std::size_t i = 452; i < 502; ++i) ASSERT_EQ(coded[i], std::byte{0x00});  // high bits
  });
}

// ---- Hostile bytes.

TEST(Lossless, every_shorter_or_longer_slice_is_refused) {
  for (const ValueFamily& family : families()) {
    const std::vector<float> values = family.values(1500, 10);
    const ByteVector bytes = encoded(values);
    on_every_simd([&] {
      for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 7) {
        ASSERT_EQ(decoded({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, values.size()).size(), 0u)
            << family.name << " " << size;
      }
      ByteVector longer = bytes;
      longer.push_back(std::byte{0});
      ASSERT_EQ(decoded(longer, values.size()).size(), 0u) << family.name;
      ASSERT_EQ(decoded(bytes, values.size() + kLosslessBlock).size(), 0u) << family.name;
      ASSERT_EQ(decoded(bytes, values.size() - kLosslessBlock).size(), 0u) << family.name;
    });
  }
}

TEST(Lossless, bits_that_mean_nothing_must_be_zero) {
  std::vector<float> values;
  for (int i = 0; i < 203; ++i) values.push_back(1.0f + static_cast<float>(i % 64) / 64);
  const ByteVector good = encoded(values);
  ASSERT_EQ(good[0], std::byte{5});
  on_every_simd([&] {
    ASSERT_EQ(decoded(good, values.size()), bits_of(values));
    for (const std::size_t at : {good.size() - 27, good.size() - 1}) {  // the last byte of each plane of level 1
      ByteVector bad = good;
      bad[at] |= std::byte{0x80};
      EXPECT_EQ(decoded(bad, values.size()).size(), 0u) << at;
    }
    for (const int base : {0, 4, 253, 255}) {
      ByteVector bad = good;
      bad[1] = static_cast<std::byte>(base);
      EXPECT_EQ(decoded(bad, values.size()).size(), 0u) << base;
    }
    for (const int form : {7, 0x80, 0x81, 0x87, 0x40, 0xFF}) {
      ByteVector bad = good;
      bad[0] = static_cast<std::byte>(form);
      EXPECT_EQ(decoded(bad, values.size()).size(), 0u) << form;
    }
  });
}

}  // namespace
}  // namespace qccl::kernels
