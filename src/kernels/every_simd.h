// For tests: runs a check on every instruction set of this machine, and verifies that it really ran there.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/simd.h"

namespace qccl::kernels {

template <class Check>
void on_every_simd(Check check) {
  const std::string before = simd_target();
  for (const std::string_view name : simd_targets()) {
    SCOPED_TRACE("on " + std::string(name));
    ASSERT_TRUE(force_simd(name));
    ASSERT_EQ(simd_target(), name);
    check();
    if (::testing::Test::HasFatalFailure()) break;
  }
  force_simd(before);
}

// Runs `work` with the scalar reference.
template <class Work>
auto by_reference(Work work) {
  const std::string before = simd_target();
  EXPECT_TRUE(force_simd("scalar"));
  auto result = work();
  force_simd(before);
  return result;
}

}  // namespace qccl::kernels
