#include "tools/codec/codec_measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

namespace qccl::tools {
namespace {

constexpr std::size_t kCount = 200'000;

Distortion distortion_of(const Compression& compression, const std::vector<float>& values) {
  return measure_distortion(make_codec(compression).take_or_throw().get(), values);
}

TEST(CodecMeasure, distortion_of_evenly_spread_values_is_that_of_even_steps) {
  const DataSet gauss = synthetic_data("gauss", kCount, 3);
  std::vector<float> even(kCount);
  for (std::size_t i = 0; i < kCount; ++i) even[i] = std::erf(gauss.values[i] / std::sqrt(2.0f));  // -1 to 1
  for (const int bits : {2, 4, 8}) {
    const Distortion found = distortion_of(minmax({.bits = bits}), even);
    const double unit = 2 / (std::ldexp(1, bits) - 1);
    EXPECT_NEAR(found.nmse / (unit * unit / 12 * 3), 1, 0.02) << bits;  // the values' variance is 1/3
    EXPECT_NEAR(found.max_error / (unit / 2 * std::sqrt(3)), 1, 0.02) << bits;
    EXPECT_NEAR(found.bits, bits + 64.0 / 1024, 0.001) << bits;
    EXPECT_TRUE(found.within_bound);
  }
}

TEST(CodecMeasure, nothing_is_lost_without_compression) {
  const DataSet data = synthetic_data("t3", 1000, 1);
  const Distortion raw = distortion_of(none(), data.values);
  EXPECT_EQ(raw.bits, 32);
  EXPECT_EQ(raw.nmse, 0);
  EXPECT_EQ(distortion_of(minmax({.bits = 32}), data.values).nmse, 0);
  EXPECT_EQ(distortion_of(minmax(), std::vector<float>(5, 0.0f)).nmse, 0);
}

TEST(CodecMeasure, a_sum_has_the_errors_of_all_its_hops) {
  const DataSet gauss = synthetic_data("gauss", kCount, 3);
  const auto codec = make_codec(grid({.bound = 0.1f})).take_or_throw();
  const double one = measure_distortion(codec.get(), gauss.values).nmse;
  for (const int hops : {1, 4, 16}) {
    const Distortion found = measure_sum_distortion(codec.get(), gauss.values, hops);
    // The same error at each hop, over the energy of hops + 1 independent ranks.
    EXPECT_NEAR(found.nmse / (one * hops / (hops + 1)), 1, 0.02) << hops;
    EXPECT_EQ(found.nmse, measure_sum_distortion(codec.get(), gauss.values, hops).nmse);
  }
  EXPECT_EQ(measure_sum_distortion(nullptr, gauss.values, 4).nmse, 0);
}

// A codec whose stated bound is too small.
class Boaster final : public Codec {
 public:
  std::uint32_t bucket_size() const override { return right_->bucket_size(); }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return right_->max_encoded_bytes(elements); }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override {
    return right_->encode(source, target, random);
  }
  Status decode(ConstBytes source, std::span<float> target) const override { return right_->decode(source, target); }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    return right_->decode_add(source, addend, target);
  }
  double error_bound(const BlockSummary& block) const override { return right_->error_bound(block) * 0.9; }

 private:
  const std::shared_ptr<const Codec> right_ = make_codec(minmax({.bits = 4})).take_or_throw();
};

TEST(CodecMeasure, an_error_beyond_the_bound_is_detected) {
  EXPECT_FALSE(
      measure_distortion(std::make_unique<Boaster>().get(), synthetic_data("gauss", 5000, 1).values).within_bound);
}

TEST(CodecMeasure, speeds_are_above_zero_even_of_few_values) {
  const auto codec = make_codec(minmax({.bits = 4})).take_or_throw();
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70'000}}) {
    const Speed speed = measure_speed(*codec, synthetic_data("gauss", count, 1).values, 0.001);
    for (const Rate& rate : {speed.encode, speed.decode, speed.decode_add}) {
      EXPECT_GT(std::min(rate.gigabytes, rate.of_copy), 0) << count;
    }
  }
}

// Even moments tell the distributions apart.
TEST(CodecData, distributions_have_their_spread_and_tails) {
  struct Case {
    const char* name;
    double variance;
    double tolerance;    // five standard errors of a million samples; t3 has no fourth moment, so no such error
    double beyond_four;  // the share of elements beyond 4
  };
  for (const Case& c : {Case{"gauss", 1, 0.007, 6.3e-5}, Case{"laplace", 2, 0.012, 0.0183}, Case{"t3", 3, 0.2, 0.028},
                        Case{"outliers", 0.99 + 9, 0.08, 0.01 * 0.894}}) {
    const DataSet data = synthetic_data(c.name, 1'000'000, 1);
    double squares = 0, beyond = 0;
    for (const float value : data.values) {
      squares += static_cast<double>(value) * value;
      beyond += std::fabs(value) > 4;
    }
    EXPECT_NEAR(squares / 1e6 / c.variance, 1, c.tolerance) << c.name;
    EXPECT_NEAR(beyond / 1e6, c.beyond_four, 0.05 * c.beyond_four + 3e-5) << c.name;
    EXPECT_EQ(data.values, synthetic_data(c.name, 1'000'000, 1).values);
  }
  EXPECT_NE(synthetic_data("gauss", 10, 1).values, synthetic_data("gauss", 10, 2).values);
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "qccl_codec_data_" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string refusal(const std::string& path) {
  const auto data = read_data(path);
  return data.ok() ? "" : data.error().message;
}

TEST(CodecData, a_file_is_read_as_floats_and_a_wrong_one_refused) {
  const float values[] = {1.5f, -2.0f};
  const std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
  const auto data = read_data(written("good", bytes));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data.value().values, (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(data.value().name, "qccl_codec_data_good");
  EXPECT_NE(refusal(written("odd", bytes + "x")).find("9 bytes are no floats"), std::string::npos);
  EXPECT_NE(refusal(written("empty", "")).find("0 bytes"), std::string::npos);
  EXPECT_NE(refusal("/nonexistent/file").find("No such file"), std::string::npos);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal(written("nan", bytes + std::string(reinterpret_cast<const char*>(&nan), 4))).find("element 2"),
            std::string::npos);
}

}  // namespace
}  // namespace qccl::tools
