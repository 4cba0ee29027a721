#include "plan/plan.h"

#include <gtest/gtest.h>

namespace qccl::plan {
namespace {

TEST(ScheduleText, has_all_of_a_lane_and_its_steps) {
  const RankSchedule schedule{{{.chunk = 2,
                                .input_begin = 100,
                                .count = 50,
                                .steps = {{StepKind::send_input, 1, {3, 0}}},
                                .scratch = true,
                                .after = -1},
                               {.chunk = 5,
                                .input_begin = 7,
                                .output_begin = 40,
                                .count = 10,
                                .steps = {{StepKind::local_reduce, 0, {}, true},
                                          {StepKind::finish},
                                          {StepKind::send_result, 2, {1}, false, true}},
                                .after = 0},
                               {.chunk = 6,
                                .output_begin = 60,
                                .count = 1,
                                .steps = {{StepKind::recv_copy, 0, {1}}},
                                .slice_by_slice = true,
                                .after = 1}}};
  EXPECT_EQ(to_string(schedule),
            "lane 0: chunk 2, input [100, 150), in scratch:\n"
            "  send_input phase 1 peers [3 0]\n"
            "lane 1: chunk 5, input [7, 17), output [40, 50), after lane 0:\n"
            "  local_reduce phase 0 peers [] quantized\n"
            "  finish phase 0 peers []\n"
            "  send_result phase 2 peers [1] raw\n"
            "lane 2: chunk 6, output [60, 61), after lane 1 slice by slice:\n"
            "  recv_copy phase 0 peers [1]\n");
}

TEST(OpenSlices, open_with_each_slice_that_the_lane_before_ends_or_all_at_its_end) {
  const Lane whole{.after = 0};
  const Lane by_slice{.slice_by_slice = true, .after = 0};
  EXPECT_EQ(open_slices(whole, 5, 3, 4), 0U);
  EXPECT_EQ(open_slices(whole, 5, 4, 4), 5U);
  EXPECT_EQ(open_slices(by_slice, 5, 0, 4), 0U);
  EXPECT_EQ(open_slices(by_slice, 5, 3, 4), 3U);
  EXPECT_EQ(open_slices(by_slice, 5, 4, 4), 5U) << "beyond the last slice of the lane before";
  EXPECT_EQ(open_slices(by_slice, 2, 3, 4), 2U);
}

}  // namespace
}  // namespace qccl::plan
