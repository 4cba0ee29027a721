#include "base/digest/digest.h"

#include <gtest/gtest.h>

#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qccl {
namespace {

std::string bytes_of(std::size_t count) {
  std::string bytes(count, '\0');
  unsigned value = 1;
  for (char& byte : bytes) byte = static_cast<char>((value = value * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST(Digest, is_xxh3_of_any_length_place_and_seed) {
  for (const std::size_t count : {0, 1, 240, 241, 1023, 1024, 1025, 2048, 4099, 65536, 300001}) {
    for (const std::size_t start : {0, 1, 63}) {
      const std::string bytes = bytes_of(start + count);
      for (const std::uint64_t seed : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        EXPECT_EQ(digest(std::string_view(bytes).substr(start), seed),
                  XXH3_64bits_withSeed(bytes.data() + start, count, seed))
            << count << " bytes from " << start;
      }
    }
  }
}

#ifdef __x86_64__
TEST(Digest, is_the_same_by_all_instructions_of_this_machine) {
  for (const std::size_t count : {0, 1, 241, 1025, 65537}) {
    const std::string bytes = bytes_of(count);
    const std::uint64_t expected = XXH3_64bits_withSeed(bytes.data(), count, 7);
    if (__builtin_cpu_supports("avx2")) EXPECT_EQ(digest_avx2(bytes.data(), count, 7), expected) << count;
    if (__builtin_cpu_supports("avx512f")) EXPECT_EQ(digest_avx512(bytes.data(), count, 7), expected) << count;
  }
}
#endif

}  // namespace
}  // namespace qccl
