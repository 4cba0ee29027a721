#include "codec/setting.h"

#include <cmath>

#include "gtest/gtest.h"

namespace qccl {
namespace {

constexpr CodecSetting kWhole = {.key = "bits", .allowed = "1..8|16|32", .default_value = 8};
constexpr CodecSetting kReal = {.key = "density", .allowed = "0.001..1.0", .default_value = 0.01};
constexpr CodecSetting kWord = {.key = "rounding", .allowed = "nearest|stochastic|up", .default_value = 0};

TEST(CodecSetting, whole_numbers_are_those_of_ranges_and_single_ones) {
  for (const char* text : {"1", "8", "16", "32"}) EXPECT_TRUE(read_setting(kWhole, text)) << text;
  EXPECT_EQ(read_setting(kWhole, "16"), 16);
  for (const char* text : {"", "0", "9", "17", "-1", "+4", "4.0", "4.5", "1e0", " 4", "4 ", "0x4", "four", "nan", "inf",
                           "18446744073709551617", "99999999999999999999999"}) {
    EXPECT_FALSE(read_setting(kWhole, text)) << text;
  }
}

TEST(CodecSetting, real_numbers_are_those_of_a_range_with_a_point) {
  EXPECT_EQ(read_setting(kReal, "0.25"), 0.25);
  EXPECT_EQ(read_setting(kReal, "1e-2"), 0.01);
  EXPECT_EQ(read_setting(kReal, "1"), 1);
  for (const char* text : {"", "0", "0.0009", "1.01", "-0.5", "nan", "inf", "0.5x", "0,5", ".", "1e400"}) {
    EXPECT_FALSE(read_setting(kReal, text)) << text;
  }
  constexpr CodecSetting from_zero = {.key = "x", .allowed = "0.0..1.0"};
  EXPECT_FALSE(std::signbit(*read_setting(from_zero, "-0")));
}

TEST(CodecSetting, words_are_their_places) {
  EXPECT_EQ(read_setting(kWord, "nearest"), 0);
  EXPECT_EQ(read_setting(kWord, "up"), 2);
  for (const char* text : {"", "near", "nearest|stochastic", "Nearest", "0", "1"}) {
    EXPECT_FALSE(read_setting(kWord, text)) << text;
  }
}

TEST(CodecSetting, what_is_written_reads_back) {
  for (const double value : {0.001, 0.01, 0.1 + 0.2, 1.0, 1.0 / 3}) {
    EXPECT_EQ(read_setting(kReal, write_setting(kReal, value)), value);
  }
  EXPECT_EQ(write_setting(kWhole, 16), "16");
  EXPECT_EQ(write_setting(kReal, 0.01), "0.01");
  EXPECT_EQ(write_setting(kWord, 1), "stochastic");
}

TEST(CodecSetting, numbers_that_are_none_of_its_values_are_not_allowed) {
  for (const double value : {0.0, 9.0, 4.5, -1.0, std::nan(""), HUGE_VAL}) EXPECT_FALSE(allows(kWhole, value));
  for (const double value : {-1.0, 3.0, 0.5, std::nan("")}) EXPECT_FALSE(allows(kWord, value));
  for (const double value : {0.0, 1.5, std::nan("")}) EXPECT_FALSE(allows(kReal, value));
  EXPECT_TRUE(allows(kWord, 2));
}

}  // namespace
}  // namespace qccl
