#include "qccl/compression.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "codec/registry.h"
#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "qccl/error.h"

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
  constexpr CodecSetting tiny = {.key = "bound", .allowed = "1e-30..1e20"};
  EXPECT_EQ(read_setting(tiny, "0.25"), 0.25);
  EXPECT_EQ(read_setting(tiny, write_setting(tiny, 1e-30)), 1e-30);
  EXPECT_FALSE(read_setting(tiny, "1e21"));
  constexpr CodecSetting whole_end = {.key = "x", .allowed = "0.001..1"};
  EXPECT_EQ(read_setting(whole_end, "0.25"), 0.25);
  constexpr CodecSetting from_zero = {.key = "x", .allowed = "0.0..1.0"};
  EXPECT_FALSE(std::signbit(*read_setting(from_zero, "-0")));
}

TEST(CodecSetting, words_are_their_indices) {
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

TEST(MakeCodec, none_has_no_codec) { EXPECT_EQ(make_codec(none()).take_or_throw(), nullptr); }

TEST(MakeCodec, refuses_what_does_not_exist) {
  const Compression valid = minmax();
  for (const double bits : {-1.0, 0.0, 33.0, 4.5, std::nan(""), HUGE_VAL}) {
    Compression wrong = valid;
    wrong.settings[0] = bits;
    const auto result = make_codec(wrong);
    ASSERT_FALSE(result.ok()) << bits;
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument);
    EXPECT_NE(result.error().message.find(allowed_compressions()), std::string::npos);
  }
  for (const double bucket_size : {0.0, 65537.0}) {
    Compression wrong = valid;
    wrong.settings[1] = bucket_size;
    EXPECT_FALSE(make_codec(wrong).ok());
  }
  Compression too_many = valid;
  too_many.settings.back() = 1;
  EXPECT_FALSE(make_codec(too_many).ok());
  const Compression unknown{.codec = 1000};
  EXPECT_FALSE(make_codec(unknown).ok());
  EXPECT_EQ(unknown.to_string(), "codec 1000");
  EXPECT_EQ(unknown.name(), "unknown");
}

TEST(Registry, every_entry_can_be_named_explained_and_made) {
  std::set<std::string_view> names;
  EXPECT_EQ(codec_list()[0]->name, "none");
  for (const CodecEntry* entry : codec_list()) {
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_FALSE(entry->summary.empty() || entry->layout.empty() || entry->bound.empty()) << entry->name;
    EXPECT_LE(entry->settings.size(), Compression::kMaxSettings);
    for (const CodecSetting& setting : entry->settings) {
      EXPECT_TRUE(allows(setting, setting.default_value)) << entry->name << " " << setting.key;
      EXPECT_FALSE(setting.meaning.empty()) << entry->name << " " << setting.key;
    }
    const Compression by_default = Compression::parse(entry->name);
    EXPECT_EQ(by_default.name(), entry->name);
    EXPECT_EQ(Compression::parse(by_default.to_string()), by_default);
    for (const Compression& example : examples_of(*entry)) EXPECT_EQ(example.name(), entry->name);
    EXPECT_FALSE(examples_of(*entry).empty());
  }
}

TEST(Compression, a_setting_is_found_by_its_name) {
  EXPECT_EQ(minmax({.bits = 4, .bucket_size = 64}).setting("bucket_size"), 64);
  EXPECT_EQ(cast(DataType::float16).setting("type"), 1);
  EXPECT_THROW(minmax().setting("type"), Error);
  EXPECT_THROW(none().setting("bits"), Error);
}

TEST(Compression, text_reads_back_to_an_equal_value) {
  std::vector<Compression> values = {none(), cast(), cast(DataType::float16), lossless()};
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32}) {
    for (const std::uint32_t bucket_size : {1u, 7u, 1024u, 65536u}) {
      values.push_back(minmax({.bits = bits, .bucket_size = bucket_size}));
    }
  }
  for (const Compression& value : values) EXPECT_EQ(Compression::parse(value.to_string()), value) << value.to_string();
}

TEST(Compression, keys_may_be_left_out_and_come_in_any_order) {
  EXPECT_EQ(Compression::parse("cast"), cast(DataType::bfloat16));
  EXPECT_EQ(Compression::parse("cast:type=fp16"), cast(DataType::float16));
  EXPECT_EQ(Compression::parse("minmax"), minmax());
  EXPECT_EQ(Compression::parse("minmax:bits=4"), minmax({.bits = 4}));
  EXPECT_EQ(Compression::parse("minmax:bucket_size=64,bits=4"), minmax({.bits = 4, .bucket_size = 64}));
  EXPECT_EQ(Compression::parse("h4:scale=least,bits=2"), h4({.bits = 2, .unbiased = false}));
  EXPECT_EQ(Compression::parse("sign:scale=norm,bucket_size=64"), sign({.bucket_size = 64, .norm_scale = true}));
  EXPECT_EQ(Compression::parse("topk:density=0.05,values=int8"), topk({.density = 0.05, .int8_values = true}));
}

TEST(Compression, texts_are_as_documented) {
  EXPECT_EQ(none().to_string(), "none");
  EXPECT_EQ(cast().to_string(), "cast:type=bf16");
  EXPECT_EQ(minmax({.bits = 4}).to_string(), "minmax:bits=4,bucket_size=1024");
  EXPECT_EQ(minmax({.rounding = Rounding::stochastic}).to_string(),
            "minmax:bits=8,bucket_size=1024,rounding=stochastic");
  EXPECT_EQ(block_int({.bits = 4}).to_string(), "int:bits=4,block=128");
  EXPECT_EQ(lossless().to_string(), "lossless");
  EXPECT_EQ(h4().to_string(), "h4:bits=4");
  EXPECT_EQ(h4({.bits = 2, .unbiased = false}).to_string(), "h4:bits=2,scale=least");
  EXPECT_EQ(sign().to_string(), "sign:bucket_size=256");
  EXPECT_EQ(sign({.bucket_size = 64, .norm_scale = true}).to_string(), "sign:bucket_size=64,scale=norm");
  EXPECT_EQ(topk().to_string(), "topk:density=0.01,values=fp32");
  EXPECT_EQ(block_int({.rounding = Rounding::stochastic}).to_string(), "int:bits=8,block=128,rounding=stochastic");
}

TEST(Compression, every_refusal_names_the_text_and_lists_what_is_allowed) {
  // Between bars, by codec.
  constexpr std::string_view kRefused =
      "|zip|None| none|none |none:|none:bits=4|none,"
      "|cast:|cast:type|cast:type=|cast:type=fp8|cast:bits=4|cast:type=bf16,|cast:type=bf16,type=bf16"
      "|minmax:|minmax:bits|minmax:bits=|minmax:bits=0|minmax:bits=33|minmax:rounding=up"
      "|minmax:bits=-4|minmax:bits=+4|minmax:bits= 4|minmax:bits=4.0|minmax:bits=4x|minmax:bits=0x4"
      "|minmax:bits=99999999999999999999|minmax:bits=4294967300|minmax:bucket_size=0"
      "|minmax:bucket_size=65537|minmax:bits=4,|minmax:bits=4,,bucket_size=64|minmax:,bits=4"
      "|minmax:bits=4,bits=4|minmax:bits=4;bucket_size=64|minmax:bits=4:bucket_size=64|minmax:BITS=4"
      "|minmax:type=bf16|minmax:=4"
      "|lossless:bits=4|int:bits=1|int:bits=9|int:block=0|int:bucket_size=128";
  for (const std::string_view spec : split(kRefused, '|')) {
    const std::string message = refusal([&] { return Compression::parse(spec); });
    EXPECT_NE(message.find("'" + std::string(spec) + "'"), std::string::npos) << message;
    for (const char* allowed : {"none", "cast:type=bf16|fp16", "bits=1..32", "bucket_size=1..65536"}) {
      EXPECT_NE(message.find(allowed), std::string::npos) << message;
    }
  }
}

TEST(Compression, a_refusal_names_the_key_and_its_value) {
  const auto refusal_of = [](const char* text) { return refusal([&] { return Compression::parse(text); }); };
  EXPECT_NE(refusal_of("minmax:bits=33").find("bits can't be '33'"), std::string::npos);
  EXPECT_NE(refusal_of("minmax:rounding=up").find("rounding can't be 'up'"), std::string::npos);
}

TEST(Compression, factories_refuse_what_does_not_exist) {
  EXPECT_THROW(minmax({.bits = 33}), Error);
  EXPECT_THROW(block_int({.bits = 1}), Error);
  EXPECT_THROW(block_int({.bits = 8, .block = 0}), Error);
  EXPECT_THROW(minmax({.bits = 8, .bucket_size = 0}), Error);
  EXPECT_THROW(minmax({.bits = 8, .bucket_size = 65537}), Error);
  EXPECT_THROW(cast(DataType::float32), Error);
  EXPECT_THROW(topk({.density = 0}), Error);
  EXPECT_THROW(topk({.density = 0.51}), Error);
}

}  // namespace
}  // namespace qccl
