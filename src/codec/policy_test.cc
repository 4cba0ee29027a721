#include "qccl/policy.h"

#include <string>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "qccl/error.h"

namespace qccl {
namespace {

constexpr std::uint64_t kLarge = 1 << 20;

TensorInfo matrix(std::string_view name, std::uint64_t count = kLarge, DataType type = DataType::float32) {
  return {.name = name, .count = count, .dimensions = 2, .type = type};
}

Compression chosen(std::string_view policy, const TensorInfo& tensor, std::uint64_t step = 0) {
  return Policy::parse(policy).choose(tensor, step);
}

TEST(Policy, without_rules_compresses_nothing) {
  EXPECT_EQ(Policy().choose(matrix("weight"), 1000), none());
  EXPECT_EQ(chosen("warmup=10", matrix("weight"), 1000), none());
}

TEST(Policy, leaves_small_one_dimensional_and_integer_tensors_as_they_are) {
  const std::string all = "minmax:bits=4";
  const Compression four = minmax({.bits = 4});
  EXPECT_EQ(chosen(all, matrix("weight")), four);
  EXPECT_EQ(chosen(all, matrix("weight", kLarge, DataType::bfloat16)), four);
  EXPECT_EQ(chosen(all, matrix("weight", 16 * 1024)), four) << "64 KiB";
  EXPECT_EQ(chosen(all, matrix("weight", 16 * 1024 - 1)), none());
  EXPECT_EQ(chosen(all, matrix("weight", 16 * 1024, DataType::float16)), none()) << "32 KiB";
  EXPECT_EQ(chosen(all, {.name = "bias", .count = kLarge, .dimensions = 1}), none());
  for (const DataType type : {DataType::int32, DataType::float64, DataType::uint8, DataType::boolean}) {
    EXPECT_EQ(chosen(all, matrix("weight", kLarge, type)), none());
    EXPECT_EQ(chosen("bytes=0.. dims=0.. minmax", matrix("weight", kLarge, type)), none());
  }
}

TEST(Policy, rules_say_otherwise_by_their_own_conditions) {
  EXPECT_EQ(chosen("bytes=0.. minmax", matrix("weight", 1)), minmax());
  EXPECT_EQ(chosen("dims=1 minmax", {.count = kLarge, .dimensions = 1}), minmax());
  EXPECT_EQ(chosen("dims=1 minmax", {.count = kLarge, .dimensions = 2}), none());
  EXPECT_EQ(chosen("dims=..3 minmax", {.count = kLarge, .dimensions = 0}), minmax());
  EXPECT_EQ(chosen("bytes=1M..2M minmax", matrix("weight", 1 << 18)), minmax());
  EXPECT_EQ(chosen("bytes=1M..2M minmax", matrix("weight", 1 << 19)), minmax());
  EXPECT_EQ(chosen("bytes=1M..2M minmax", matrix("weight", (1 << 19) + 1)), none());
  EXPECT_EQ(chosen("type=bfloat16 minmax", matrix("weight")), none());
  EXPECT_EQ(chosen("type=float16|bfloat16 minmax", matrix("weight", kLarge, DataType::bfloat16)), minmax());
}

TEST(Policy, a_budget_is_of_the_rule_that_fits) {
  const Policy policy = Policy::parse("warmup=5; name=head minmax; name=embed budget=0.5; budget=1.5 @100 int:bits=4");
  EXPECT_EQ(policy.budget(matrix("head"), 10), 0);
  EXPECT_EQ(policy.budget(matrix("embed"), 10), 0.5);
  EXPECT_EQ(policy.budget(matrix("weight"), 10), 1.5);
  EXPECT_EQ(policy.budget(matrix("weight"), 4), 0) << "in the warm-up";
  EXPECT_EQ(policy.budget(matrix("weight"), 100), 0) << "a later stage has none";
  EXPECT_EQ(policy.budget(matrix("bias", 8), 10), 0) << "too small";
  EXPECT_EQ(policy.choose(matrix("weight"), 10), grid({.entropy = true})) << "what stands in for it";
  EXPECT_EQ(policy.choose(matrix("weight"), 100), block_int({.bits = 4}));
  EXPECT_EQ(Policy::parse(policy.to_string()), policy) << policy.to_string();
  EXPECT_NE(Policy::parse("budget=1"), Policy::parse("budget=2"));
  for (const std::string_view text : {"budget=0", "budget=-1", "budget=33", "budget=x", "budget=", "budget=nan"}) {
    EXPECT_NE(refusal([&] { return Policy::parse(text); }).find("bits an element"), std::string::npos) << text;
  }
}

TEST(Policy, the_first_rule_that_fits_holds) {
  const std::string policy = "name=*.embed*|head none; name=layer.? cast; bytes=8M.. minmax:bits=2; minmax:bits=4";
  EXPECT_EQ(chosen(policy, matrix("model.embedding")), none());
  EXPECT_EQ(chosen(policy, matrix("head")), none());
  EXPECT_EQ(chosen(policy, matrix("layer.7")), cast());
  EXPECT_EQ(chosen(policy, matrix("layer.10")), minmax({.bits = 4}));
  EXPECT_EQ(chosen(policy, matrix("headed", 1 << 21)), minmax({.bits = 2}));
}

TEST(Policy, globs_are_for_the_whole_name) {
  const auto fits = [](const std::string& glob, std::string_view name) {
    return chosen("name=" + glob + " minmax", matrix(name)) == minmax();
  };
  EXPECT_TRUE(fits("a*b*c", "aXXbYbZc"));
  EXPECT_TRUE(fits("*", ""));
  EXPECT_TRUE(fits("*.weight", "h.0.weight"));
  EXPECT_TRUE(fits("a**", "a"));
  EXPECT_TRUE(fits("*aab", "aaaab"));
  EXPECT_FALSE(fits("weight", "h.weight"));
  EXPECT_FALSE(fits("weight", "weights"));
  EXPECT_FALSE(fits("a?", "a"));
  EXPECT_FALSE(fits("a*b", "abc"));
  EXPECT_FALSE(fits("", "a"));
  // Would take forever if every star tried all that the others leave.
  EXPECT_FALSE(fits("a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(20'000, 'a')));
}

TEST(Policy, compression_changes_at_the_steps_of_its_schedule) {
  const std::string policy = "warmup=10; minmax:bits=8 @100 minmax:bits=4 @1K none";
  const auto at = [&](std::uint64_t step) { return chosen(policy, matrix("weight"), step); };
  EXPECT_EQ(at(0), none());
  EXPECT_EQ(at(9), none());
  EXPECT_EQ(at(10), minmax({.bits = 8}));
  EXPECT_EQ(at(99), minmax({.bits = 8}));
  EXPECT_EQ(at(100), minmax({.bits = 4}));
  EXPECT_EQ(at(1023), minmax({.bits = 4}));
  EXPECT_EQ(at(1024), none());
  EXPECT_EQ(at(UINT64_MAX), none());
}

TEST(Policy, text_reads_back_to_an_equal_value) {
  EXPECT_EQ(Policy::parse(Policy().to_string()), Policy());
  for (const char* text :
       {"minmax:bits=4", "warmup=7", "warmup=2K; none",
        "name=a*|?b bytes=3..64K dims=..2 type=float32|bfloat16 minmax:bits=8 @5 cast @7K none; cast",
        "bytes=0.. minmax; dims=1 none", "  minmax   @3   cast ; warmup=4 "}) {
    const Policy policy = Policy::parse(text);
    EXPECT_EQ(Policy::parse(policy.to_string()), policy) << policy.to_string();
  }
  EXPECT_EQ(Policy::parse("warmup=3; name=*.b dims=1 cast @1024 none").to_string(),
            "warmup=3; name=*.b dims=1 cast:type=bf16 @1024 none");
}

TEST(Policy, what_is_wrong_is_refused_with_text_reason_and_grammar) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a rule is empty"},
      {"minmax;", "a rule is empty"},
      {"zip", "unknown codec 'zip'"},
      {"minmax:bits=77", "bits=1..32"},
      {"name=a", "ends with a compression"},
      {"minmax @5", "ends with a compression"},
      {"minmax cast", "'cast' is no @STEP"},
      {"minmax @0 cast", "'@0' is no @STEP"},
      {"minmax @5 cast @5 none", "'@5' is no @STEP after step 5"},
      {"minmax @x cast", "'@x'"},
      {"size=4 minmax", "unknown condition 'size'"},
      {"name=a name=b minmax", "'name' comes twice"},
      {"warmup=4; warmup=0", "'warmup' comes twice"},
      {"warmup=-4", "warmup can't be '-4'"},
      {"warmup=4 minmax", "unknown condition 'warmup'"},
      {"bytes=.. minmax", "bytes can't be '..'"},
      {"bytes=2..1 minmax", "bytes can't be '2..1'"},
      {"bytes=64k.. minmax", "bytes can't be"},
      {"bytes=99999999999G minmax", "bytes can't be"},
      {"dims=two minmax", "dims can't be 'two'"},
      {"type=int32 minmax", "type can't be 'int32'"},
  };
  for (const auto& [text, words] : cases) {
    const std::string message = refusal([&, text = text] { return Policy::parse(text); });
    EXPECT_NE(message.find(std::string("'") + text + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("@STEP SPEC"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace qccl
