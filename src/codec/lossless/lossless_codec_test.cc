// Bits, sizes and damage: kernels/lossless/lossless_test.cc, and tests/property/codec_contract_test.cc.
#include "codec/round_trip.h"
#include "gtest/gtest.h"

namespace qccl {
namespace {

TEST(LosslessCodec, is_exact_and_has_no_settings) {
  const auto codec = codec_of(lossless());
  EXPECT_TRUE(codec->is_exact());
  EXPECT_EQ(codec->error_bound({-1, 1}), 0);
  EXPECT_EQ(lossless().to_string(), "lossless");
  EXPECT_EQ(Compression::parse("lossless"), lossless());
  EXPECT_THROW(Compression::parse("lossless:bits=4"), Error);
}

}  // namespace
}  // namespace qccl
