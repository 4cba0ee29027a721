// The compiled kernels with lanes in other orders, and what they cost.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kernels/device/job_case.h"
#include "ptx/kernel_costs.h"

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
                                         PayloadFormat{PayloadKind::sign, 1, false, false, 1024},
                                         PayloadFormat{PayloadKind::sign, 1, false, true, 128},
                                         PayloadFormat{.kind = PayloadKind::grid, .step = 1e-3f},
                                         PayloadFormat{.kind = PayloadKind::grid, .bucket = 2048, .step = 0.5f}),
                       ::testing::Values(ptx::Order::together, ptx::Order::forwards, ptx::Order::backwards)));

// ---- costs, with a tenth of slack

TEST(Costs, are_not_above_what_they_were) {
  if (compiled_kernels().program().target != "sm_75") GTEST_SKIP() << "the costs are those of the image's PTX";
  const std::map<std::string, double> kHeld = {
      {"copy", 12.0},
      {"bfloat16 encode", 16.9},
      {"bfloat16 reduce", 30.2},
      {"bfloat16 decode", 20.0},
      {"minmax4 encode", 27.3},
      {"minmax4 reduce", 45.7},
      {"minmax4 decode", 17.8},
      {"minmax8 encode", 27.9},
      {"minmax8 reduce", 46.2},
      {"minmax8 decode", 17.6},
      {"int4 encode", 28.5},
      {"int4 reduce", 50.1},
      {"int4 decode", 18.8},
      {"int8 encode", 29.1},
      {"int8 reduce", 50.6},
      {"int8 decode", 18.7},
      {"sign encode", 31.8},
      {"sign reduce", 50.2},
      {"sign decode", 18.5},
      {"grid encode", 71.1},
      {"grid reduce", 145.1},
      {"grid decode", 30.0},
      {"grid relative encode", 71.1},
      {"grid relative reduce", 160.1},
      {"grid relative decode", 28.1},
  };
  for (const CostCase& what : cost_cases()) {
    const auto held = kHeld.find(what.name);
    if (held != kHeld.end()) EXPECT_LE(cost_of(what).instructions, 1.1 * held->second) << what.name;
  }
}

}  // namespace
}  // namespace qccl::kernels::device
