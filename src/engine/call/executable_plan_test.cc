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

// Eight ranks on lines of 200 Mbit/s and 20 ms there and back: all that may be on its way to one of them in a phase is
// what its line holds, in slices of which a stream's window has several.
TEST(StreamLayout, streams_from_distant_ranks_share_a_window_and_have_several_slices_of_it) {
  constexpr int kWorld = 8;
  ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.algorithm = Algorithm::sra;
  call.type = DataType::float32;
  call.count = 4 << 20;
  call.slice_bytes = kDefaultSliceBytes;
  call.window_bytes = 625'000;
  const ExecutablePlan plan(call, kWorld, GroupRank(0), nullptr);
  const StreamList& inbound = plan.streams().inbound;
  ASSERT_EQ(inbound.size(), 2u * (kWorld - 1));
  const std::uint64_t slice = plan.slice_elements() * sizeof(float);
  for (std::size_t i = 0; i < inbound.size(); ++i) {
    EXPECT_GE(inbound[i].window, 5u);
    EXPECT_LE(inbound[i].window * slice, call.window_bytes / (kWorld - 1));
    EXPECT_LE(inbound[i].eager_slices, inbound[i].window / 2 + 1);
    EXPECT_GE(inbound[i].eager_slices, 1u);
  }
}

TEST(StreamLayout, streams_of_one_distant_peer_have_its_share_each) {
  constexpr int kWorld = 8;
  ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.algorithm = Algorithm::ring;
  call.count = std::uint64_t{4} << 20;
  call.type = DataType::float32;
  call.window_bytes = 625'000;
  const ExecutablePlan plan(call, kWorld, GroupRank(3), nullptr);
  const std::uint64_t slice = plan.slice_elements() * sizeof(float);
  const StreamList& inbound = plan.streams().inbound;
  for (std::size_t i = 0; i < inbound.size(); ++i) {
    const Stream& stream = inbound[i];
    EXPECT_EQ(stream.peer, GroupRank(2));
    EXPECT_LE(stream.window * slice, call.window_bytes);
    EXPECT_GT((stream.window + 1) * slice, call.window_bytes);
  }
}

TEST(StreamLayout, a_small_window_of_many_ranks_still_lets_each_send_some_small_slices) {
  ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.algorithm = Algorithm::sra;
  call.type = DataType::float32;
  call.count = 4 << 20;
  call.slice_bytes = kDefaultSliceBytes;
  call.window_bytes = 64 << 10;
  const ExecutablePlan plan(call, 16, GroupRank(0), nullptr);
  EXPECT_EQ(plan.slice_elements(), 2048u);
  EXPECT_EQ(plan.streams().inbound[0].window, 3u);
  EXPECT_EQ(plan.streams().inbound[0].least_grant, 1u);
}

}  // namespace
}  // namespace qccl::engine
