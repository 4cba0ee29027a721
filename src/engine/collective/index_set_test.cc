#include "engine/collective/index_set.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

std::vector<std::size_t> members(const IndexSet& set) {
  std::vector<std::size_t> found;
  for (std::size_t i = set.next(0); i != IndexSet::kNone; i = set.next(i + 1)) found.push_back(i);
  return found;
}

TEST(IndexSet, walks_its_members_in_order_whatever_their_word) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 128u, 1023u}) {
    IndexSet set;
    set.reset(size);
    EXPECT_EQ(members(set), std::vector<std::size_t>{});
    std::vector<std::size_t> expected;
    for (std::size_t i = size; i-- > 0;) {
      if (i % 7 == 0 || i == 63 || i == 64 || i + 1 == size) {
        set.insert(i);
        expected.insert(expected.begin(), i);
      }
    }
    EXPECT_EQ(members(set), expected) << size;
    for (const std::size_t i : expected) set.erase(i);
    EXPECT_EQ(members(set), std::vector<std::size_t>{}) << size;
  }
}

TEST(IndexSet, a_walk_meets_what_is_inserted_ahead_of_it_and_not_behind) {
  IndexSet set;
  set.reset(200);
  set.insert(10);
  std::vector<std::size_t> found;
  for (std::size_t i = set.next(0); i != IndexSet::kNone; i = set.next(i + 1)) {
    found.push_back(i);
    if (i != 10) continue;
    set.insert(3);
    set.insert(11);
    set.insert(130);
  }
  EXPECT_EQ(found, (std::vector<std::size_t>{10, 11, 130}));
  EXPECT_EQ(members(set), (std::vector<std::size_t>{3, 10, 11, 130}));
}

TEST(IndexSet, an_empty_one_has_no_members_and_reset_forgets_them) {
  IndexSet set;
  EXPECT_EQ(set.next(0), IndexSet::kNone);
  set.reset(65);
  set.insert(64);
  set.reset(65);
  EXPECT_EQ(set.next(0), IndexSet::kNone);
}

}  // namespace
}  // namespace qccl::engine
