// The members' agreement on those that go on is made whole or not at all.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "engine/shrink/agreement.h"
#include "memory/counted_new.h"

namespace qccl::testing {
namespace {

TEST(RefusedShrink, frees_what_it_has_made_of_an_agreement_once) {
  const std::vector<int> ranks{0, 1, 2};
  int refused = 0;
  for (bool goes_on = true; goes_on; refused += goes_on ? 1 : 0) {
    const std::size_t before = live_allocations();
    refuse_allocation(1 + refused);
    try {
      const engine::Agreement agreement(ranks, GroupRank(1), std::chrono::milliseconds(10));
      EXPECT_EQ(agreement.roll().size(), 3u);
    } catch (const std::bad_alloc&) {
    }
    goes_on = stop_refusing();
    EXPECT_EQ(live_allocations(), before) << "allocation " << refused + 1;
  }
  EXPECT_GE(refused, 8) << "each member has a set and losses";
}

}  // namespace
}  // namespace qccl::testing
