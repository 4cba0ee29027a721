#include "engine/call/executable_plan.h"

#include <gtest/gtest.h>

#include "base/options.h"

namespace qccl::engine {
namespace {

bool announces(const ExecutablePlan& plan, GroupRank peer) {
  for (const StreamList* list : {&plan.streams().inbound, &plan.streams().outbound}) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      if ((*list)[i].peer == peer && (*list)[i].announces) return true;
    }
  }
  return false;
}

// Rank 0 of three sends a long piece to each of the others, one after the other.
TEST(StreamLayout, announces_the_call_to_a_distant_peer_whose_data_waits_for_that_of_another) {
  constexpr std::uint64_t kElements = 10'000'000;
  ResolvedCall call;
  call.collective = Collective::all_to_all;
  call.algorithm = Algorithm::pairwise;
  call.type = DataType::float32;
  call.counts = {0, kElements, kElements, 0, 0, 0};
  call.slice_bytes = kDefaultSliceBytes;
  call.window_bytes = std::uint64_t{4} << 20;
  const ExecutablePlan plan(call, 3, GroupRank(0), nullptr);
  EXPECT_FALSE(announces(plan, GroupRank(1))) << "its first slices leave at once";
  EXPECT_TRUE(announces(plan, GroupRank(2)));
}

}  // namespace
}  // namespace qccl::engine
