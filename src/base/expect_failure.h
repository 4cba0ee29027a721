// For tests: what a Result fails with.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "base/result.h"

namespace qccl {

// Expects that `result` has failed with this kind and that its message contains `words`.
template <class T>
void expect_failure(const Result<T>& result, ErrorKind kind, std::string_view words = {}) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, kind) << result.error().message;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

}  // namespace qccl
