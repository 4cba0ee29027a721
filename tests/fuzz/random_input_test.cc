// Runs the fuzz target beside this file with random bytes and simple texts. That is no search, but every build runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/registry.h"
#include "fuzz/fuzz.h"
#include "support/elements.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace qccl::testing {
namespace {

constexpr int kRounds = 20'000;
constexpr std::uint64_t kMostBytes = 20'000;  // the same limit as libFuzzer's in scripts/run_fuzz.sh

// The other tests rely on this: a target ends the process if a requirement is violated.
TEST(RandomInput, a_violation_ends_the_process) {
  fuzz::require(true, "this holds");
  EXPECT_DEATH(fuzz::require(false, "decoded beyond the bound"), "decoded beyond the bound");
}

TEST(RandomInput, violates_nothing) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint8_t> bytes(random.below(round % 100 == 0 ? kMostBytes : 64));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
}

struct Words {
  std::vector<std::string> names;
  std::vector<std::string> others = {"=", ":", ",", "4", "bits=3", "8", "0", "-1", "1e300", ".", "", "nan", "0.01"};
};

// Pieces of specifications that random bytes rarely form: every codec's name, and the keys and words of its settings.
Words words_of_specifications() {
  Words words;
  for (const CodecEntry* entry : codec_list()) {
    words.names.emplace_back(entry->name);
    for (const CodecSetting& setting : entry->settings) {
      words.others.emplace_back(setting.key);
      words.others.emplace_back(setting.allowed.substr(0, setting.allowed.find('|')));
      words.others.push_back(fmt::format("{}={}", setting.key, write_setting(setting, setting.default_value)));
    }
  }
  return words;
}

TEST(RandomInput, made_of_words_violates_nothing) {
  const Words words = words_of_specifications();
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    std::string text = random.pick(round % 2 == 0 ? words.names : words.others) + ":";
    for (std::uint64_t i = random.below(6); i > 0; --i) {
      text += random.pick(random.below(10) == 0 ? words.names : words.others);
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace qccl::testing
