#include "codec/codec_cache.h"

#include <gtest/gtest.h>

namespace qccl {
namespace {

TEST(CodecCache, gives_the_same_codec_again) {
  CodecCache cache;
  const auto four = cache.get(minmax({.bits = 4})).take_or_throw();
  const auto eight = cache.get(minmax({.bits = 8})).take_or_throw();
  EXPECT_NE(four, eight);
  EXPECT_EQ(cache.get(minmax({.bits = 4})).take_or_throw(), four);
  EXPECT_EQ(cache.get(minmax({.bits = 8})).take_or_throw(), eight);
}

TEST(CodecCache, none_is_no_codec) {
  CodecCache cache;
  EXPECT_EQ(cache.get(none()).take_or_throw(), nullptr);
  EXPECT_EQ(cache.get(none()).take_or_throw(), nullptr);
}

TEST(CodecCache, holds_a_bounded_number_and_forgets_the_oldest) {
  CodecCache cache;
  const std::weak_ptr<const Codec> first = cache.get(minmax({.bucket_size = 1})).take_or_throw();
  for (std::uint32_t size = 2; size <= 32; ++size) {
    ASSERT_TRUE(cache.get(minmax({.bucket_size = size})).ok());
    EXPECT_FALSE(first.expired());
  }
  ASSERT_TRUE(cache.get(minmax({.bucket_size = 33})).ok());
  EXPECT_TRUE(first.expired());
}

TEST(CodecCache, passes_a_refusal_on) {
  CodecCache cache;
  EXPECT_FALSE(cache.get(Compression{.codec = 1000}).ok());
}

}  // namespace
}  // namespace qccl
