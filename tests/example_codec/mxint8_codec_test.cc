// The codec of docs/add-a-codec.md, in a list of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codec/registry.h"
#include "support/codec_contract.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl {

extern const CodecEntry kMxint8Codec;

namespace testing {
namespace {

// The library's codecs and this one.
std::vector<const CodecEntry*> extended_list() {
  std::vector<const CodecEntry*> list(codec_list().begin(), codec_list().end());
  list.push_back(&kMxint8Codec);
  return list;
}

std::shared_ptr<const Codec> mxint8(int block = 32) {
  const auto list = extended_list();
  return make_codec(parse_compression("mxint8:block=" + std::to_string(block), list).take_or_throw(), list)
      .take_or_throw();
}

TEST(Mxint8Codec, keeps_what_every_codec_promises) {
  for (const int block : {16, 32, 64, 128}) EXPECT_EQ(broken_promise(*mxint8(block)), "") << block;
}

TEST(Mxint8Codec, bytes_are_those_of_the_format) {
  std::vector<float> values(34, 0.0f);
  values[0] = 1.0f;        // e = 0, so a step of 2^-6
  values[1] = -1.99f;      // clamped: -127.36 steps
  values[2] = 0.0234375f;  // 1.5 steps, a tie: to even
  values[33] = -0x1p-126f;
  std::vector<std::byte> bytes(mxint8()->max_encoded_bytes(34));
  ASSERT_EQ(mxint8()->encode(values, bytes, {}), 36u);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 127);
  EXPECT_EQ(std::to_integer<int>(bytes[1]), 1);
  EXPECT_EQ(load<std::int8_t>(&bytes[2]), 64);
  EXPECT_EQ(load<std::int8_t>(&bytes[3]), -127);
  EXPECT_EQ(load<std::int8_t>(&bytes[4]), 2);
  EXPECT_EQ(load<std::int8_t>(&bytes[35]), -64);
}

TEST(Mxint8Codec, a_value_that_is_not_finite_makes_its_block_nan) {
  std::vector<float> values(64, 1.0f);
  values[40] = HUGE_VALF;
  std::vector<std::byte> bytes(mxint8()->max_encoded_bytes(64));
  mxint8()->encode(values, bytes, {});
  mxint8()->decode(bytes, values).take_or_throw();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(values[i]), i >= 32) << i;
}

TEST(Mxint8Codec, a_name_in_the_list_makes_it_known) {
  const auto list = extended_list();
  const auto parsed = parse_compression("mxint8:block=64", list).take_or_throw();
  EXPECT_EQ(to_string(parsed, list), "mxint8:block=64");
  EXPECT_EQ(to_string(parse_compression("mxint8", list).take_or_throw(), list), "mxint8:block=32");
  EXPECT_EQ(make_codec(parsed, list).take_or_throw()->bucket_size(), 64u);
  const auto wrong = parse_compression("mxint8:block=33", list);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("mxint8:block=16|32|64|128"), std::string::npos);
  EXPECT_FALSE(parse_compression("mxint8").ok()) << "the library's own list is unchanged";
}

TEST(Mxint8Codec, whole_collectives_run_with_it) {
  constexpr int kWorld = 4;
  SimWorld world(kWorld, {.codec = mxint8()});
  const auto call = make_call(Collective::all_reduce, 10000, DataType::float32, kWorld, {.compression = minmax()});
  const auto inputs = make_inputs(Pattern::normal, call.type, call.count, kWorld, 1);
  const CollectiveResult outcome = run_collective(world, call, inputs);
  ASSERT_EQ(outcome.problem, "");
  EXPECT_EQ(difference(call.type, outcome.outputs, std::vector<ByteVector>(kWorld, outcome.outputs[0])), "");
  for (std::uint64_t i = 0; i < call.count; ++i) {
    long double exact = 0;
    for (const ByteVector& input : inputs) exact += element(call.type, input, i);
    // Normal values are below 6, where a step is 1/16, and their sums below 16, with steps of 1/8.
    ASSERT_NEAR(static_cast<double>(element(call.type, outcome.outputs[1], i)), static_cast<double>(exact),
                3 * 0.0625 + 0.125);
  }
}

}  // namespace
}  // namespace testing
}  // namespace qccl
