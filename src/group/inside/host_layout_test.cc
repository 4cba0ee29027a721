#include "group/inside/host_layout.h"

#include <gtest/gtest.h>

namespace qccl::comm {
namespace {

using Cells = std::vector<HostLayout::Cell>;

TEST(HostLayout, ranks_of_one_place_share_a_cell) {
  const HostLayout layout({7, 7, 9, 9}, 3);
  EXPECT_EQ(layout.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(layout.host, 1u);
  EXPECT_EQ(layout.place, 1u);
  EXPECT_EQ(layout.units, 2u);
  EXPECT_EQ(layout.cells, (Cells{{0, 1, {0, 2}}, {1, 2, {1, 3}}}));
  EXPECT_FALSE(layout.owns(layout.cells[0]));
  EXPECT_TRUE(layout.owns(layout.cells[1]));
  EXPECT_TRUE(layout.has_inside());
  EXPECT_TRUE(layout.is_regular);
}

TEST(HostLayout, a_host_with_fewer_ranks_has_several_cells_for_each) {
  const HostLayout layout({0, 0, 0, 0, 1, 1}, 4);
  EXPECT_EQ(layout.units, 4u);
  EXPECT_EQ(layout.cells, (Cells{{0, 1, {0, 4}}, {1, 2, {1, 4}}, {2, 3, {2, 5}}, {3, 4, {3, 5}}}));
  EXPECT_TRUE(layout.owns(layout.cells[1]));
  EXPECT_FALSE(layout.owns(layout.cells[2]));
  EXPECT_FALSE(layout.is_regular);
}

TEST(HostLayout, cells_end_where_any_share_ends) {
  const HostLayout layout({0, 0, 0, 1, 1}, 0);
  EXPECT_EQ(layout.units, 6u);
  EXPECT_EQ(layout.cells, (Cells{{0, 2, {0, 3}}, {2, 3, {1, 3}}, {3, 4, {1, 4}}, {4, 6, {2, 4}}}));
}

TEST(HostLayout, ranks_need_not_follow_each_other) {
  const HostLayout layout({0, 1, 0, 1}, 2);
  EXPECT_EQ(layout.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(layout.cells, (Cells{{0, 1, {0, 1}}, {1, 2, {2, 3}}}));
  EXPECT_FALSE(layout.is_regular);
}

TEST(HostLayout, hosts_of_one_rank_have_no_inside) {
  EXPECT_FALSE(HostLayout({0, 1, 2}, 0).has_inside());
  const HostLayout one({5, 5, 5}, 1);
  EXPECT_TRUE(one.has_inside());
  EXPECT_EQ(one.cells, (Cells{{0, 1, {0}}, {1, 2, {1}}, {2, 3, {2}}}));
}

// Every unit has one owner on every host, and each rank owns as much as the others of its host.
TEST(HostLayout, cells_share_a_tensor_evenly) {
  const std::vector<std::vector<int>> shapes = {{1, 1, 2}, {8, 8, 4}, {8, 8, 3}, {5, 7}, {1, 8}, {6, 4, 9}};
  for (const std::vector<int>& shape : shapes) {
    std::vector<int> host_of;
    for (std::size_t host = 0; host < shape.size(); ++host) {
      host_of.insert(host_of.end(), static_cast<std::size_t>(shape[host]), static_cast<int>(host));
    }
    std::vector<std::size_t> owned(host_of.size());
    const HostLayout layout(host_of, 0);
    std::size_t end = 0;
    for (const HostLayout::Cell& cell : layout.cells) {
      EXPECT_EQ(cell.begin, end);
      end = cell.end;
      EXPECT_EQ(cell.owners.size(), shape.size());
      for (const int owner : cell.owners) {
        owned[static_cast<std::size_t>(owner)] += cell.end - cell.begin;
        EXPECT_TRUE(HostLayout(host_of, owner).owns(cell));
      }
    }
    EXPECT_EQ(end, layout.units);
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
      const auto ranks = static_cast<std::size_t>(shape[static_cast<std::size_t>(host_of[rank])]);
      EXPECT_EQ(owned[rank] * ranks, layout.units);
    }
  }
}

}  // namespace
}  // namespace qccl::comm
