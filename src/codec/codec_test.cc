#include "codec/codec.h"

#include <bit>

#include "gtest/gtest.h"

namespace qccl {
namespace {

// Encoded bytes depend on these numbers: changing them changes the format.
TEST(RandomKey, of_these_arguments_is_this_number) {
  EXPECT_EQ(random_key(0, 0, RandomPhase::input), 0x238275bc38fcbe91u);
  EXPECT_EQ(random_key(1, 2, RandomPhase::hop), 0xe930af93af0daf48u);
}

TEST(RandomKey, changes_in_about_half_of_its_bits_with_any_bit_of_its_arguments) {
  const std::uint64_t base = random_key(42, 1000, RandomPhase::input);
  const auto changed = [&](std::uint64_t key) { return std::popcount(key ^ base); };
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_GT(changed(random_key(42 ^ (std::uint64_t{1} << bit), 1000, RandomPhase::input)), 12) << bit;
    EXPECT_GT(changed(random_key(42, 1000 ^ (std::uint64_t{1} << bit), RandomPhase::input)), 12) << bit;
  }
  EXPECT_GT(changed(random_key(42, 1000, RandomPhase::owner)), 12);
  EXPECT_GT(changed(random_key(42, 1000, RandomPhase::hop)), 12);
}

}  // namespace
}  // namespace qccl
