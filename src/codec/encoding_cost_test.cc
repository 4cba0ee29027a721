#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/round_trip.h"
#include "qccl/compression.h"

namespace qccl {
namespace {

std::vector<float> waves(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i));
  return values;
}

TEST(EncodingCost, of_no_compression_is_all_bits_and_no_error) {
  const EncodingCost cost = measure_encoding(none(), waves(1000));
  EXPECT_EQ(cost.bits(), 32);
  EXPECT_EQ(cost.nmse(), 0);
  EXPECT_NEAR(cost.cosine(), 1, 1e-12);
}

TEST(EncodingCost, is_that_of_what_the_codec_makes_of_the_values) {
  const std::vector<float> values = waves(1001);  // less than a slice
  const Compression compression = block_int({.bits = 4});
  const auto codec = codec_of(compression);
  const std::vector<float> decoded = round_trip(*codec, values);
  double squares = 0, errors = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += std::pow(double{values[i]}, 2);
    errors += std::pow(double{decoded[i]} - double{values[i]}, 2);
  }
  const EncodingCost cost = measure_encoding(compression, values);
  EXPECT_EQ(cost.elements, 1001u);
  EXPECT_EQ(cost.bytes, encoded(*codec, values).size());
  EXPECT_DOUBLE_EQ(cost.nmse(), errors / squares);
  EXPECT_LT(cost.cosine(), 1);
  EXPECT_GT(cost.cosine(), 0.99);
}

TEST(EncodingCost, may_be_that_of_some_slices) {
  std::vector<float> values = waves(1 << 20);
  const Compression compression = grid({.bound = 0.25, .entropy = true});
  const EncodingCost all = measure_encoding(compression, values);
  EXPECT_EQ(all.elements, values.size());
  const EncodingCost some = measure_encoding(compression, values, 1 << 17);
  EXPECT_LE(some.elements, 1u << 17);
  EXPECT_GE(some.elements, 1u << 16);
  EXPECT_NEAR(some.bits(), all.bits(), 0.02 * all.bits());
  EXPECT_NEAR(some.nmse(), all.nmse(), 0.02 * all.nmse());
  std::fill(values.begin(), values.begin() + (1 << 19), 0.0f);
  const EncodingCost half = measure_encoding(compression, values, 1 << 17);
  EXPECT_NEAR(half.squares / some.squares, 0.5, 0.01) << "the slices are of both halves";
  EXPECT_GT(measure_encoding(compression, values, 1).elements, 0u);
}

TEST(EncodingCost, of_values_without_a_size_or_a_number) {
  EXPECT_EQ(measure_encoding(block_int(), {}).bits(), 0);
  const EncodingCost zeros = measure_encoding(grid(), std::vector<float>(100));
  EXPECT_EQ(zeros.nmse(), 0);
  EXPECT_EQ(zeros.cosine(), 0);
  const std::vector<float> nan(100, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(measure_encoding(grid({.bound = 0.1}), nan).nmse()));
}

TEST(EncodingCost, is_not_of_a_choice_of_encodings) {
  EXPECT_NE(refusal([] { return measure_encoding(automatic(), waves(8)); }).find("auto"), std::string::npos);
}

}  // namespace
}  // namespace qccl
