#include "engine/state/admission_control.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

constexpr std::uint64_t kHalf = AdmissionControl::kRunningBytes / 2;

TEST(AdmissionControl, calls_run_together_up_to_the_limit) {
  AdmissionControl admission;
  EXPECT_TRUE(admission.post(kHalf));
  EXPECT_TRUE(admission.post(kHalf));
  EXPECT_FALSE(admission.any_waits());
  EXPECT_FALSE(admission.post(1));
  EXPECT_TRUE(admission.any_waits());
  admission.end(kHalf);
  EXPECT_TRUE(admission.begin_next(1));
  EXPECT_FALSE(admission.any_waits());
}

TEST(AdmissionControl, a_call_beyond_the_limit_runs_alone) {
  AdmissionControl admission;
  EXPECT_TRUE(admission.post(3 * AdmissionControl::kRunningBytes));
  EXPECT_FALSE(admission.post(1));
  EXPECT_FALSE(admission.begin_next(1));
  admission.end(3 * AdmissionControl::kRunningBytes);
  EXPECT_TRUE(admission.begin_next(1));
}

TEST(AdmissionControl, no_call_overtakes_one_that_waits) {
  AdmissionControl admission;
  EXPECT_TRUE(admission.post(kHalf));
  EXPECT_FALSE(admission.post(AdmissionControl::kRunningBytes));
  EXPECT_FALSE(admission.post(1)) << "there is room for it, but another call was first";
  admission.end(kHalf);
  EXPECT_TRUE(admission.begin_next(AdmissionControl::kRunningBytes));
  EXPECT_FALSE(admission.begin_next(1));
  EXPECT_TRUE(admission.any_waits());
}

}  // namespace
}  // namespace qccl::engine
