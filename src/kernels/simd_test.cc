#include "kernels/simd.h"

#include <cstdlib>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"

namespace qccl::kernels {
namespace {

// For a fresh process in which QCCL_SIMD has not been read yet: exits with 0 if the value makes `expected` run.
[[noreturn]] void exit_after_reading(const char* value, std::string_view expected) {
  ::setenv("QCCL_SIMD", value, 1);
  ::setenv("QCCL_LOG", "warning", 1);
  std::exit(simd_target() == expected ? 0 : 1);
}

TEST(Simd, scalar_is_always_there_and_names_are_unique) {
  const auto names = simd_targets();
  EXPECT_EQ(names.back(), "scalar");
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
}

TEST(Simd, a_forced_target_is_the_one_that_runs) {
  int ran = 0;
  on_every_simd([&] { ++ran; });
  EXPECT_EQ(ran, static_cast<int>(simd_targets().size()));
}

TEST(Simd, forcing_an_unknown_target_changes_nothing) {
  const std::string before = simd_target();
  EXPECT_FALSE(force_simd("mmx"));
  EXPECT_FALSE(force_simd(""));
  EXPECT_EQ(simd_target(), before);
}

// Unknown text also warns with the allowed names.
TEST(SimdEnvironment, each_name_selects_its_target_and_any_other_text_the_widest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto expect = [](const char* value, std::string_view target, const char* output) {
    EXPECT_EXIT(exit_after_reading(value, target), ::testing::ExitedWithCode(0), output) << value;
  };
  for (const std::string_view name : simd_targets()) expect(name.data(), name, "");
  expect("", simd_targets().front(), "");
  expect("fastest", simd_targets().front(), "warning: QCCL_SIMD=fastest is none of .*scalar.*: using ");
}

}  // namespace
}  // namespace qccl::kernels
