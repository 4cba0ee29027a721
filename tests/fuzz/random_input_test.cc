// The fuzz target beside this file with random bytes and simple texts: no search, but every build runs it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/elements.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace qccl::testing {
namespace {

constexpr int kRounds = 20'000;

TEST(RandomInput, violates_nothing) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint8_t> bytes(random.below(round % 100 == 0 ? 4096 : 64));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
}

// Pieces of specifications, which random bytes hardly hit.
TEST(RandomInput, made_of_words_violates_nothing) {
  const std::vector<std::string> words = {"minmax", "cast", "none", "bits", "type",  "bf16", "=", ":",   ",",   "4",
                                          "bits=3", "8",    "0",    "-1",   "1e300", ".",    "",  "nan", "auto"};
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    std::string text = random.pick(words) + ":";
    for (std::uint64_t i = random.below(6); i > 0; --i) text += random.pick(words);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace qccl::testing
