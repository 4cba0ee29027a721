// Lanes that are after another slice by slice (plan::Lane::slice_by_slice).
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "plan/plan.h"
#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

// In an exchange a rank's lanes send to rank + 1, rank + 2, ..., each after the one before it.
TEST(LaneOrder, slice_leaves_after_the_same_slice_of_the_lane_before_it) {
  for (const int size : {3, 5}) {
    SimWorld world(size, {.seed = 4, .link = {.jitter = std::chrono::milliseconds(5)}, .slice_bytes = 4096});
    std::set<std::tuple<int, int, std::uint64_t>> sent;  // rank, distance, slice
    std::uint64_t last_slice = 0;
    int early = 0;
    world.network().set_tap([&](int from, int to, Bytes frame) {
      const auto header = wire::decode_header(frame.data());
      if (!header.ok() || header.value().kind != wire::FrameKind::data) return;
      const std::uint64_t slice = header.value().slice;
      const int distance = (to - from + size) % size;
      early += distance > 1 && !sent.contains({from, distance - 1, slice});
      last_slice = std::max<std::uint64_t>(last_slice, slice);
      sent.insert({from, distance, slice});
    });
    const Algorithm exchange = algorithm_named("exchange").value();
    SimCall call(world, world_group(world),
                 make_call(Collective::reduce_scatter, 30000, DataType::float32, size, {.algorithm = exchange}));
    call.post_all();
    ASSERT_TRUE(world.run(call.works()));
    EXPECT_EQ(call.verify(), "");
    EXPECT_EQ(early, 0) << size << " ranks";
    EXPECT_GT(last_slice, 16U) << "more than a window";
  }
}

}  // namespace
}  // namespace qccl::testing
