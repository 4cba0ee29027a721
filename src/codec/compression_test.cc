#include "qccl/compression.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "qccl/error.h"

namespace qccl {
namespace {

std::string refusal(std::string_view spec) {
  try {
    static_cast<void>(Compression::parse(spec));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << spec;
  return {};
}

TEST(Compression, text_reads_back_to_an_equal_value) {
  std::vector<Compression> values = {none(), cast(), cast(DataType::float16)};
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
}

TEST(Compression, texts_are_as_documented) {
  EXPECT_EQ(none().to_string(), "none");
  EXPECT_EQ(cast().to_string(), "cast:type=bf16");
  EXPECT_EQ(minmax({.bits = 4}).to_string(), "minmax:bits=4,bucket_size=1024");
  EXPECT_EQ(minmax({.rounding = Rounding::stochastic}).to_string(),
            "minmax:bits=8,bucket_size=1024,rounding=stochastic");
  EXPECT_EQ(block_int({.bits = 4}).to_string(), "int:bits=4,block=128");
  EXPECT_EQ(block_int({.rounding = Rounding::stochastic}).to_string(), "int:bits=8,block=128,rounding=stochastic");
}

TEST(Compression, every_refusal_names_the_text_and_lists_what_is_allowed) {
  for (const char* spec : {"",
                           "zip",
                           "None",
                           " none",
                           "none ",
                           "none:",
                           "none:bits=4",
                           "none,",
                           "cast:",
                           "cast:type",
                           "cast:type=",
                           "cast:type=fp8",
                           "cast:bits=4",
                           "cast:type=bf16,",
                           "cast:type=bf16,type=bf16",
                           "minmax:",
                           "minmax:bits",
                           "minmax:bits=",
                           "minmax:bits=0",
                           "minmax:bits=33",
                           "minmax:rounding=up",
                           "int:bits=1",
                           "int:bits=9",
                           "int:block=0",
                           "int:bucket_size=128",
                           "minmax:bits=-4",
                           "minmax:bits=+4",
                           "minmax:bits= 4",
                           "minmax:bits=4.0",
                           "minmax:bits=4x",
                           "minmax:bits=0x4",
                           "minmax:bits=99999999999999999999",
                           "minmax:bits=4294967300",
                           "minmax:bucket_size=0",
                           "minmax:bucket_size=65537",
                           "minmax:bits=4,",
                           "minmax:bits=4,,bucket_size=64",
                           "minmax:,bits=4",
                           "minmax:bits=4,bits=4",
                           "minmax:bits=4;bucket_size=64",
                           "minmax:bits=4:bucket_size=64",
                           "minmax:BITS=4",
                           "minmax:type=bf16",
                           "minmax:=4"}) {
    const std::string message = refusal(spec);
    EXPECT_NE(message.find("'" + std::string(spec) + "'"), std::string::npos) << message;
    for (const char* allowed : {"none", "cast:type=bf16|fp16", "bits=1..32", "bucket_size=1..65536"}) {
      EXPECT_NE(message.find(allowed), std::string::npos) << message;
    }
  }
}

TEST(Compression, factories_refuse_what_does_not_exist) {
  EXPECT_THROW(minmax({.bits = 33}), Error);
  EXPECT_THROW(block_int({.bits = 1}), Error);
  EXPECT_THROW(block_int({.bits = 8, .block = 0}), Error);
  EXPECT_THROW(minmax({.bits = 8, .bucket_size = 0}), Error);
  EXPECT_THROW(minmax({.bits = 8, .bucket_size = 65537}), Error);
  EXPECT_THROW(cast(DataType::float32), Error);
}

}  // namespace
}  // namespace qccl
