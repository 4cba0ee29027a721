// The codec returns every bit, keeps to the promised size, and reports damage as CorruptData. The format itself and all
// instruction sets: kernels/lossless/lossless_test.cc.
#include "codec/lossless/lossless_codec.h"

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lossless/lossless.h"
#include "kernels/reduce/exact_half.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

std::shared_ptr<const Codec> codec() { return make_codec(lossless()).take_or_throw(); }

std::vector<std::byte> encode(const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec()->max_encoded_bytes(values.size()));
  bytes.resize(codec()->encode(values, bytes, {}));
  return bytes;
}

bool comes_back(const std::vector<float>& values) {
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(codec()->decode(encode(values), decoded).ok());
  return std::memcmp(decoded.data(), values.data(), values.size() * sizeof(float)) == 0;
}

std::vector<float> all_patterns(DataType type) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(halves.size());
  kernels::widen_exactly(type, values.data(), halves.data(), halves.size());
  return values;
}

TEST(LosslessCodec, all_patterns_of_16_bits_come_back_whatever_order_they_have) {
  std::mt19937 random(1);
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    std::vector<float> values = all_patterns(type);
    EXPECT_TRUE(comes_back(values));
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_TRUE(comes_back(values));
    EXPECT_LE(encode(values).size(), values.size() * 2 * 1016 / 1000);
  }
}

TEST(LosslessCodec, random_bits_come_back_and_grow_by_no_more_than_a_byte_a_block) {
  std::mt19937 random(2);
  for (const std::size_t n : {1u, 100u, 1024u, 32768u}) {
    std::vector<float> values(n);
    for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    EXPECT_TRUE(comes_back(values));
    EXPECT_LE(encode(values).size(), 4 * n + n / 1024 + 1);
  }
}

TEST(LosslessCodec, every_family_of_values_comes_back) {
  for (const auto& family : kernels::families_with_nonfinite()) {
    for (const std::size_t n : {0u, 1u, 5u, 1023u, 5000u}) EXPECT_TRUE(comes_back(family.values(n, 3))) << family.name;
  }
}

TEST(LosslessCodec, max_encoded_bytes_grows_with_the_elements) {
  for (std::size_t n = 0; n < 5000; ++n) ASSERT_LT(codec()->max_encoded_bytes(n), codec()->max_encoded_bytes(n + 1));
}

TEST(LosslessCodec, damage_is_corrupt_data) {
  std::vector<float> target(3000);
  const auto bytes = encode(kernels::finite_families()[0].values(target.size(), 4));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
    const Status status = codec()->decode({bytes.data(), size}, target);
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
    EXPECT_FALSE(codec()->decode_add({bytes.data(), size}, target, target).ok());
  }
}

TEST(LosslessCodec, is_exact_and_has_no_settings) {
  EXPECT_TRUE(codec()->is_exact());
  EXPECT_EQ(codec()->error_bound({-1, 1}), 0);
  EXPECT_EQ(lossless().to_string(), "lossless");
  EXPECT_EQ(Compression::parse("lossless"), lossless());
  EXPECT_THROW(Compression::parse("lossless:bits=4"), Error);
}

}  // namespace
}  // namespace qccl
