// MeshShape against lists written by hand.
#include "qccl/mesh.h"

#include <gtest/gtest.h>

namespace qccl {
namespace {

using Groups = std::vector<std::vector<int>>;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(MeshShape, the_last_dimension_varies_fastest) {
  const MeshShape shape{{"pp", 2}, {"dp", 3}, {"tp", 2}};
  EXPECT_EQ(shape.size(), 12);
  EXPECT_EQ(shape.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
  EXPECT_EQ(shape.groups("dp"), (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(shape.groups("pp"), (Groups{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
  EXPECT_EQ(shape.coordinate(9, "pp"), 1);
  EXPECT_EQ(shape.coordinate(9, "dp"), 1);
  EXPECT_EQ(shape.coordinate(9, "tp"), 1);
  EXPECT_EQ(shape.coordinate(4, "dp"), 2);
  EXPECT_EQ(shape.size_of("dp"), 3);
  EXPECT_EQ(shape.to_string(), "pp=2 x dp=3 x tp=2");
}

TEST(MeshShape, groups_along_several_dimensions_ascend_in_whatever_order_they_are_named) {
  const MeshShape shape{{"pp", 2}, {"dp", 3}, {"tp", 2}};
  EXPECT_EQ(shape.groups("dp-tp"), (Groups{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}));
  EXPECT_EQ(shape.groups("pp-tp"), (Groups{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
  EXPECT_EQ(shape.groups("tp-pp"), shape.groups("pp-tp"));
  EXPECT_EQ(shape.groups("tp-dp-pp"), (Groups{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}));
  EXPECT_EQ(shape.group_of(8, "pp-tp"), (std::vector<int>{2, 3, 8, 9}));
}

// 16 ranks, tensor parallelism of 2, 4 pipeline stages: the example with which Megatron-LM explains its groups.
TEST(MegatronOrder, of_2_tensor_parts_and_4_stages) {
  const auto shape = MeshShape::ordered("tp-cp-ep-dp-pp", {{"tp", 2}, {"pp", 4}, {"dp", 2}});
  EXPECT_EQ(shape.size(), 16);
  EXPECT_EQ(shape.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(shape.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(shape.groups("pp"), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(shape.groups("tp-pp"), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(shape.groups("tp-dp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(shape.groups("cp").size(), 16u);
}

TEST(MegatronOrder, with_the_pipeline_inside_of_the_copies) {
  const auto shape = MeshShape::ordered("tp-cp-ep-pp-dp", {{"tp", 2}, {"pp", 4}, {"dp", 2}});
  EXPECT_EQ(shape.groups("dp"), (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(shape.groups("pp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
}

// tp=2, pp=3, dp=4.
TEST(MegatronOrder, of_three_sizes_that_all_differ) {
  const auto shape = MeshShape::ordered("tp-pp-dp", {{"tp", 2}, {"pp", 3}, {"dp", 4}});
  EXPECT_EQ(
      shape.groups("pp"),
      (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}, {12, 14, 16}, {13, 15, 17}, {18, 20, 22}, {19, 21, 23}}));
  EXPECT_EQ(shape.groups("tp-dp"),
            (Groups{{0, 1, 6, 7, 12, 13, 18, 19}, {2, 3, 8, 9, 14, 15, 20, 21}, {4, 5, 10, 11, 16, 17, 22, 23}}));
}

// Context and data parallelism are averaged over together; experts have an order of their own, without cp.
TEST(MegatronOrder, of_contexts_and_of_experts) {
  const auto decoder = MeshShape::ordered("tp-cp-ep-dp-pp", {{"tp", 2}, {"cp", 2}, {"dp", 2}, {"pp", 2}});
  EXPECT_EQ(decoder.groups("cp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(decoder.groups("dp-cp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(decoder.groups("tp-cp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  const auto expert = MeshShape::ordered("tp-cp-ep-dp-pp", {{"ep", 4}, {"dp", 2}, {"pp", 2}});
  EXPECT_EQ(expert.groups("ep"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(expert.groups("dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(expert.groups("tp-ep-pp"), (Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST(MegatronOrder, may_leave_out_what_has_the_size_1) {
  const auto shape = MeshShape::ordered("tp-dp", {{"tp", 2}, {"dp", 2}, {"cp", 1}});
  EXPECT_EQ(shape.groups("dp-cp"), (Groups{{0, 2}, {1, 3}}));
}

TEST(MeshShape, errors_say_what_there_is) {
  const MeshShape shape{{"pp", 2}, {"tp", 4}};
  EXPECT_EQ(error_of([&] { shape.groups("dp"); }), "QCCL mesh: there is no dimension 'dp' in pp=2 x tp=4");
  EXPECT_EQ(error_of([&] { shape.groups(""); }), "QCCL mesh: there is no dimension '' in pp=2 x tp=4");
  EXPECT_EQ(error_of([&] { shape.group_of(0, "pp-x"); }), "QCCL mesh: there is no dimension 'x' in pp=2 x tp=4");
  EXPECT_EQ(error_of([&] { shape.coordinate(8, "pp"); }), "QCCL mesh: there is no rank 8 in pp=2 x tp=4");
  EXPECT_EQ(error_of([&] { shape.group_of(-1, "pp"); }), "QCCL mesh: there is no rank -1 in pp=2 x tp=4");
}

TEST(MeshShape, refuses_what_is_no_mesh) {
  const auto make = [](std::vector<Dimension> dimensions) {
    return error_of([&] { MeshShape{std::move(dimensions)}; });
  };
  EXPECT_EQ(make({}), "QCCL mesh: a mesh has at least one dimension");
  EXPECT_EQ(make({{"a", 2}, {"a", 3}}), "QCCL mesh: there are two dimensions 'a'");
  EXPECT_EQ(make({{"a", 0}}), "QCCL mesh: dimension a=0: the size must be at least 1");
  EXPECT_EQ(make({{"a-b", 2}}), "QCCL mesh: 'a-b' can't be a dimension's name: it must not be empty, nor contain '-'");
  EXPECT_EQ(make({{"a", 1 << 20}, {"b", 1 << 20}}), "QCCL mesh: a=1048576 x b=1048576 are too many ranks");
  EXPECT_EQ(error_of([] {
              MeshShape::ordered("tp-pp", {{"tp", 2}, {"cp", 2}});
            }),
            "QCCL mesh: dimension cp=2 is not in the order 'tp-pp'");
  EXPECT_EQ(error_of([] { MeshShape::ordered("tp-tp", {}); }), "QCCL mesh: there are two dimensions 'tp'");
}

}  // namespace
}  // namespace qccl
