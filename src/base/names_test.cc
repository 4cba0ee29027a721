#include <set>
#include <string>

#include "gtest/gtest.h"
#include "qccl/error.h"
#include "qccl/types.h"

namespace qccl {
namespace {

// Checks that the names of the first `count` values are all different, and that the next value has none.
template <class Enum>
void expect_names(int count) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace(to_string(static_cast<Enum>(i)));
  EXPECT_EQ(static_cast<int>(names.size()), count);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(std::string(to_string(static_cast<Enum>(count))), "unknown");
}

TEST(Names, every_value_has_its_own) {
  expect_names<ErrorKind>(8);
  expect_names<DataType>(13);
  expect_names<ReduceOp>(9);
  expect_names<Collective>(9);
  expect_names<Algorithm>(static_cast<int>(every_algorithm().size()) + 1);  // and automatic
}

TEST(Names, are_the_words_users_write) {
  EXPECT_STREQ(to_string(ErrorKind::peer_lost), "peer_lost");
  EXPECT_EQ(to_string(DataType::bfloat16), "bfloat16");
  EXPECT_EQ(to_string(DataType::boolean), "bool");
  EXPECT_EQ(to_string(ReduceOp::avg), "avg");
  EXPECT_EQ(to_string(ReduceOp::bit_and), "band");
  EXPECT_EQ(to_string(ReduceOp::premul_sum), "premul_sum");
  EXPECT_EQ(to_string(Collective::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(to_string(Collective::all_to_all), "all_to_all");
}

TEST(DataTypes, of_elements_follow_from_kind_width_and_sign) {
  EXPECT_EQ(data_type_of<bool>(), DataType::boolean);
  EXPECT_EQ(data_type_of<std::int8_t>(), DataType::int8);
  EXPECT_EQ(data_type_of<const std::uint8_t>(), DataType::uint8);
  EXPECT_EQ(data_type_of<std::int16_t>(), DataType::int16);
  EXPECT_EQ(data_type_of<std::uint16_t>(), DataType::uint16);
  EXPECT_EQ(data_type_of<std::int32_t>(), DataType::int32);
  EXPECT_EQ(data_type_of<std::uint32_t>(), DataType::uint32);
  EXPECT_EQ(data_type_of<long>(), DataType::int64);
  EXPECT_EQ(data_type_of<long long>(), DataType::int64);
  EXPECT_EQ(data_type_of<unsigned long long>(), DataType::uint64);
  EXPECT_EQ(data_type_of<float16>(), DataType::float16);
  EXPECT_EQ(data_type_of<const bfloat16>(), DataType::bfloat16);
  EXPECT_FALSE(has_data_type<long double>);
}

TEST(DataTypes, elements_without_one_move_as_bytes) {
  struct Point {
    double x, y;
    char tag;
  };
  EXPECT_EQ(moved<Point>(5).type, DataType::uint8);
  EXPECT_EQ(moved<Point>(5).count, 5 * sizeof(Point));
  EXPECT_EQ(moved<std::int16_t>(5).type, DataType::int16);
  EXPECT_EQ(moved<std::int16_t>(5).count, 5u);
}

TEST(DataTypes, each_supports_its_meaningful_operations) {
  for (int i = 0; i < 13; ++i) {
    const auto type = static_cast<DataType>(i);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
      EXPECT_TRUE(supports(type, op));
    }
    for (const ReduceOp op : {ReduceOp::avg, ReduceOp::premul_sum}) EXPECT_EQ(supports(type, op), is_floating(type));
    for (const ReduceOp op : {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
      EXPECT_EQ(supports(type, op), !is_floating(type));
    }
  }
}

}  // namespace
}  // namespace qccl
