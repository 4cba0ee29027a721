// The traits of collectives and operations that qccl/types.h gives.
#include "qccl/types.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace qccl {
namespace {

// One letter a trait: Reduction, rOoted, Input pieces, oUtput pieces, Compressible.
std::string traits_of(Collective collective) {
  return std::string(is_reduction(collective) ? "R" : "-") + (is_rooted(collective) ? "O" : "-") +
         (has_input_pieces(collective) ? "I" : "-") + (has_output_pieces(collective) ? "U" : "-") +
         (is_compressible(collective) ? "C" : "-");
}

TEST(Traits, of_every_collective) {
  EXPECT_EQ(traits_of(Collective::all_reduce), "R---C");
  EXPECT_EQ(traits_of(Collective::reduce), "RO--C");
  EXPECT_EQ(traits_of(Collective::broadcast), "-O--C");
  EXPECT_EQ(traits_of(Collective::reduce_scatter), "R-I-C");
  EXPECT_EQ(traits_of(Collective::all_gather), "---UC");
  EXPECT_EQ(traits_of(Collective::gather), "-O-U-");
  EXPECT_EQ(traits_of(Collective::scatter), "-OI--");
  EXPECT_EQ(traits_of(Collective::all_to_all), "--IUC");
  EXPECT_EQ(traits_of(Collective::barrier), "-----");
  std::set<std::string_view> names;
  for (const Collective collective : kEveryCollective) names.insert(to_string(collective));
  EXPECT_EQ(names.size(), std::size(kEveryCollective));
}

TEST(Traits, bus_factors_are_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::all_reduce) continue;
    EXPECT_DOUBLE_EQ(bus_factor(collective, 4), has_pieces(collective) ? 0.75 : 1) << to_string(collective);
  }
}

TEST(Traits, codecs_take_sums_of_three_types) {
  int sums = 0;
  for (int op = 0; op <= static_cast<int>(ReduceOp::premul_sum); ++op) sums += is_sum(static_cast<ReduceOp>(op));
  EXPECT_EQ(sums, 3);
  EXPECT_TRUE(is_sum(ReduceOp::avg));
  int types = 0;
  for (int type = 0; type <= static_cast<int>(DataType::boolean); ++type) {
    types += is_compressible(static_cast<DataType>(type));
  }
  EXPECT_EQ(types, 3);
  EXPECT_TRUE(is_compressible(DataType::bfloat16));
}

}  // namespace
}  // namespace qccl
