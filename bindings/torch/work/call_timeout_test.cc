#include "work/call_timeout.h"

#include <gtest/gtest.h>

namespace qccl::torch_binding {
namespace {

using std::chrono::milliseconds;

TEST(CallTimeout, an_extension_ends_with_the_first_work_that_began_with_it) {
  CallTimeout timeout;
  timeout.set(milliseconds(100));
  const auto earlier = timeout.claim();
  timeout.extend(milliseconds(5));
  const auto first = timeout.claim();
  const auto second = timeout.claim();
  timeout.release(earlier);
  timeout.release(second);
  EXPECT_EQ(timeout.now(), milliseconds(105));
  EXPECT_EQ(timeout.extension(), milliseconds(5));
  timeout.release(first);
  EXPECT_EQ(timeout.now(), milliseconds(100));
}

TEST(CallTimeout, extensions_add_up_and_end_one_by_one) {
  CallTimeout timeout;
  timeout.set(milliseconds(100));
  timeout.extend(milliseconds(5));
  timeout.extend(milliseconds(6));
  const auto first = timeout.claim();
  timeout.extend(milliseconds(70));
  const auto second = timeout.claim();
  EXPECT_EQ(timeout.now(), milliseconds(181));
  timeout.release(first);
  EXPECT_EQ(timeout.now(), milliseconds(170));
  timeout.set(milliseconds(1000));
  EXPECT_EQ(timeout.now(), milliseconds(1070));
  timeout.release(second);
  EXPECT_EQ(timeout.now(), milliseconds(1000));
  timeout.extend(milliseconds(3));
  EXPECT_EQ(timeout.claim(), milliseconds(3));
}

}  // namespace
}  // namespace qccl::torch_binding
