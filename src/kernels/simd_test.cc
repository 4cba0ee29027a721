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

class SimdEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

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

TEST_F(SimdEnvironment, each_name_selects_its_target) {
  for (const std::string_view name : simd_targets()) {
    EXPECT_EXIT(exit_after_reading(name.data(), name), ::testing::ExitedWithCode(0), "") << name;
  }
}

TEST_F(SimdEnvironment, empty_means_the_widest) {
  EXPECT_EXIT(exit_after_reading("", simd_targets().front()), ::testing::ExitedWithCode(0), "");
}

TEST_F(SimdEnvironment, unknown_text_warns_with_the_allowed_names_and_uses_the_widest) {
  EXPECT_EXIT(exit_after_reading("fastest", simd_targets().front()), ::testing::ExitedWithCode(0),
              "warning: QCCL_SIMD=fastest is none of .*scalar.*: using ");
}

}  // namespace
}  // namespace qccl::kernels
