#include "extras/train/outer/standing.h"

#include <gtest/gtest.h>

#include "base/fields.h"

namespace qccl::train {
namespace {

OuterStanding in_flight() {
  return {.settings = 1,
          .position = {.steps = 2,
                       .rounds = 3,
                       .origin_step = 4,
                       .origin_round = 5,
                       .is_begun = true,
                       .begun_at = 6,
                       .weight = 7.5,
                       .begun_rate = 0.25,
                       .was_idle = true,
                       .rounds_in_agreement = 8,
                       .finishes = 9,
                       .lineage = {.now = 10, .before_last_round = 11, .last_group = 12}},
          .rate = 0.5,
          .next_begin_in = -13,
          .lacks_state = true,
          .group_number = 14};
}

TEST(OuterStanding, every_field_arrives) { EXPECT_EQ(*decode_standing(encode_standing(in_flight())), in_flight()); }

TEST(OuterStanding, all_have_the_same_number_of_bytes) {
  EXPECT_EQ(encode_standing({}).size(), encode_standing(in_flight()).size());
}

TEST(OuterStanding, other_numbers_of_bytes_are_corrupt) {
  const std::string bytes = encode_standing(in_flight());
  for (const std::string& wrong : {bytes.substr(1), bytes + "x", std::string()}) {
    const auto decoded = decode_standing(wrong);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().kind, ErrorKind::corrupt_data);
  }
}

// By hand from the table of saved_state.cc.
TEST(OuterPosition, saved_fields_have_the_bytes_of_version_2) {
  const OuterStanding standing = in_flight();
  FieldWriter to;
  visit_saved(to, standing.position);
  FieldWriter expected;
  for (const std::uint64_t number : {2, 3, 4, 5, 1, 6}) expected.integer(number);
  for (const double number : {7.5, 0.25}) expected.integer(number);
  EXPECT_EQ(to.take(), expected.take());
}

OuterStanding after(std::uint64_t rounds, OuterLineage lineage, bool lacks_state = false) {
  return {.position = {.rounds = rounds, .lineage = lineage}, .lacks_state = lacks_state};
}

TEST(OuterStanding, the_source_has_the_model_the_most_rounds_and_the_largest_party) {
  EXPECT_EQ(source_of({after(0, {}), after(0, {})}), 0);
  EXPECT_EQ(source_of({after(9, {}, true), after(1, {})}), 1);
  EXPECT_EQ(source_of({after(1, {.now = 1}), after(2, {.now = 2}), after(2, {.now = 2})}), 1);
  EXPECT_EQ(source_of({after(2, {.now = 1}), after(2, {.now = 2}), after(2, {.now = 2})}), 1);
}

TEST(OuterStanding, a_rank_lacks_one_round_if_its_model_is_the_one_before) {
  const OuterStanding best = after(5, {.now = 50, .before_last_round = 40});
  EXPECT_TRUE(after(5, {.now = 50}).is_level_with(best));
  EXPECT_FALSE(after(5, {.now = 51}).is_level_with(best));
  EXPECT_FALSE(after(5, {.now = 50}, true).is_level_with(best));
  EXPECT_TRUE(after(4, {.now = 40}).lacks_one_of(best));
  EXPECT_FALSE(after(4, {.now = 41}).lacks_one_of(best));
  EXPECT_FALSE(after(3, {.now = 40}).lacks_one_of(best));
  EXPECT_FALSE(after(4, {.now = 40}, true).lacks_one_of(best));
}

}  // namespace
}  // namespace qccl::train
