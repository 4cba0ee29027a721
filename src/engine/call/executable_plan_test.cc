#include "engine/call/executable_plan.h"

#include <gtest/gtest.h>

#include "base/options.h"

namespace qccl::engine {
namespace {

// Rank 0 of three sends long pieces to both others, one after the other, and receives nothing.
TEST(StreamLayout, announces_a_stream_that_waits_for_another_to_a_distant_peer) {
  constexpr std::uint64_t kElements = 10'000'000;
  ResolvedCall call;
  call.collective = Collective::all_to_all;
  call.algorithm = Algorithm::pairwise;
  call.type = DataType::float32;
  call.counts = {0, kElements, kElements, 0, 0, 0};
  call.slice_bytes = kDefaultSliceBytes;
  call.window_bytes = std::uint64_t{4} << 20;
  const ExecutablePlan plan(call, 3, GroupRank(0), nullptr);
  const StreamList& outbound = plan.streams().outbound;
  ASSERT_EQ(outbound.size(), 2u);
  EXPECT_GT(outbound[0].eager_slices, 0u);
  EXPECT_FALSE(outbound[0].announces) << "its first slices leave at once";
  EXPECT_TRUE(outbound[1].announces) << "its first slices may have to wait for the other peer";
}

}  // namespace
}  // namespace qccl::engine
