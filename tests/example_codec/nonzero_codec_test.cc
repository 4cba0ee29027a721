// The second codec of docs/add-a-codec.md, whose size depends on the values.
#include <gtest/gtest.h>

#include "codec/registry.h"
#include "codec/round_trip.h"
#include "support/codec_contract.h"
#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl {

extern const CodecEntry kNonzeroCodec;

namespace testing {
namespace {

std::shared_ptr<const Codec> nonzero() { return kNonzeroCodec.make(SettingValues({}, {})); }

TEST(NonzeroCodec, keeps_what_every_codec_promises) { EXPECT_EQ(broken_promise(*nonzero()), ""); }

TEST(NonzeroCodec, bytes_are_those_of_the_format) {
  std::vector<float> values(10, 0.0f);
  values[1] = 1.5f;
  values[9] = -0.0f;
  const std::vector<std::byte> bytes = encoded(*nonzero(), values);
  ASSERT_EQ(bytes.size(), 2u + 2 * 4);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 2);
  EXPECT_EQ(std::to_integer<int>(bytes[1]), 2);
  EXPECT_EQ(load<float>(&bytes[2]), 1.5f);
  EXPECT_EQ(nonzero()->max_encoded_bytes(10), 2u + 10 * 4);
  EXPECT_EQ(nonzero()->expected_encoded_bytes(160, DataType::float32), 20u + 10 * 4);
}

TEST(NonzeroCodec, bytes_of_another_length_or_with_padding_are_corrupt_data) {
  std::vector<float> values(10, 1.0f);
  const std::vector<std::byte> bytes = encoded(*nonzero(), values);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, bytes.size() - 1}) {
    const Status status = nonzero()->decode(ConstBytes(bytes).first(size), values);
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
    EXPECT_EQ(status.error().message, "nonzero: " + std::to_string(size) + " bytes are not 10 elements");
  }
  std::vector<std::byte> padded = encoded(*nonzero(), std::vector<float>(10, 0.0f));
  padded[1] = std::byte{4};
  padded.resize(padded.size() + 4);
  EXPECT_FALSE(nonzero()->decode(padded, values).ok());
}

TEST(NonzeroCodec, sums_of_whole_collectives_are_those_of_the_reference) {
  constexpr int kWorld = 4;
  SimWorld world(kWorld, {.codec = nonzero()});
  const auto call = make_call(Collective::all_reduce, 10000, DataType::float32, kWorld, {.compression = lossless()});
  const auto inputs = make_inputs(Pattern::whole, call.type, call.count, kWorld, 1);
  const CollectiveResult outcome = run_collective(world, call, inputs);
  ASSERT_EQ(outcome.problem, "");
  const auto expected = expected_outputs(std::vector<engine::ResolvedCall>(kWorld, call), inputs);
  EXPECT_EQ(difference(call.type, outcome.outputs, expected), "");
}

}  // namespace
}  // namespace testing
}  // namespace qccl
