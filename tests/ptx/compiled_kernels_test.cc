// The compiled kernels with lanes in other orders, and what they cost.
#include "ptx/compiled_kernels.h"

#include <gtest/gtest.h>

#include "kernels/device/job_case.h"

namespace qccl::kernels::device {
namespace {

// ---- a missing barrier shows where each lane runs by itself

class LaneOrders : public ::testing::TestWithParam<std::tuple<PayloadFormat, ptx::Order>> {};

TEST_P(LaneOrders, give_the_hosts_bytes) {
  const auto& [format, order] = GetParam();
  JobCase what{.wants_sum = true, .family = families_with_nonfinite()[16], .seed = 5, .shift = 1};
  what.job.count = 2500;
  what.job.format = format;
  what.job.source_count = 2;
  what.job.sources[1].kind = SourceKind::payload;
  what.job.payload_count = 1;
  what.job.sources[0].adds_residual = true;  // a piece that is done twice is wrong
  what.job.keeps_residual = true;
  const JobMemory memory(what);
  const Written expected = by_reference([&] { return Oracle(memory.job()).run(); });
  launch_compiled(entry(memory.job()), &memory.job(), 1, {.blocks = 2, .threads = kThreads, .order = order});
  EXPECT_TRUE(memory.written() == expected);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, LaneOrders,
    ::testing::Combine(::testing::Values(PayloadFormat{}, PayloadFormat{.kind = PayloadKind::bfloat16},
                                         PayloadFormat{PayloadKind::minmax, 4, false, false, 1024},
                                         PayloadFormat{PayloadKind::minmax, 3, true, false, 100},
                                         PayloadFormat{PayloadKind::minmax, 8, false, false, 2048},
                                         PayloadFormat{PayloadKind::block_int, 5, false, false, 32},
                                         PayloadFormat{PayloadKind::block_int, 8, true, false, 7},
                                         PayloadFormat{PayloadKind::sign, 1, false, false, 256},
                                         PayloadFormat{PayloadKind::sign, 1, false, true, 24}),
                       ::testing::Values(ptx::Order::together, ptx::Order::forwards, ptx::Order::backwards)));

}  // namespace
}  // namespace qccl::kernels::device
