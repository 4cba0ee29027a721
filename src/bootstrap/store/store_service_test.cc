#include "bootstrap/store/store_service.h"

#include <gtest/gtest.h>

namespace qccl::bootstrap {
namespace {

using Waiters = std::vector<StoreState::Waiter>;

Waiters take_released(StoreState& state) {
  Waiters all;
  while (const auto waiter = state.any_released()) {
    all.push_back(*waiter);
    state.cancel(*waiter);
  }
  return all;
}

TEST(StoreState, set_overwrites_and_get_finds) {
  StoreState state;
  EXPECT_EQ(state.get("a"), nullptr);
  ASSERT_TRUE(state.set("a", "1").ok());
  ASSERT_TRUE(state.set("a", "two").ok());
  EXPECT_EQ(*state.get("a"), "two");
}

TEST(StoreState, add_counts_from_zero_in_decimal) {
  StoreState state;
  EXPECT_EQ(*state.add("n", 5), 5);
  EXPECT_EQ(*state.add("n", -7), -2);
  EXPECT_EQ(*state.get("n"), "-2");
}

TEST(StoreState, add_refuses_text_and_overflow_and_changes_nothing) {
  StoreState state;
  ASSERT_TRUE(state.set("text", "12x").ok());
  EXPECT_EQ(state.add("text", 1).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(*state.add("big", INT64_MAX), INT64_MAX);
  EXPECT_EQ(state.add("big", 1).error().kind, ErrorKind::corrupt_data);
  EXPECT_EQ(*state.add("big", 0), INT64_MAX);
}

TEST(StoreState, a_waiter_is_released_once_by_the_last_of_its_keys) {
  StoreState state;
  EXPECT_TRUE(state.wait(1, {"a", "b"}));
  ASSERT_TRUE(state.set("b", "").ok());
  EXPECT_EQ(take_released(state), Waiters());
  ASSERT_TRUE(state.add("a", 0).ok());
  EXPECT_EQ(take_released(state), Waiters{1});
  ASSERT_TRUE(state.set("a", "again").ok());
  EXPECT_EQ(take_released(state), Waiters());
}

TEST(StoreState, a_wait_for_keys_that_exist_is_not_recorded) {
  StoreState state;
  ASSERT_TRUE(state.set("a", "").ok());
  EXPECT_FALSE(state.wait(1, {"a"}));
  EXPECT_FALSE(state.wait(1, {}));
  EXPECT_EQ(state.any_waiting(), std::nullopt);
}

TEST(StoreState, a_cancelled_waiter_is_never_released) {
  StoreState state;
  EXPECT_TRUE(state.wait(1, {"a"}));
  EXPECT_TRUE(state.wait(2, {"a"}));
  EXPECT_TRUE(state.wait(3, {"a"}));
  state.cancel(1);
  EXPECT_EQ(state.any_waiting(), 2);
  ASSERT_TRUE(state.set("a", "").ok());
  state.cancel(3);
  EXPECT_EQ(take_released(state), Waiters{2});
}

TEST(StoreState, erases_all_keys_of_a_prefix_and_their_bytes) {
  StoreState state(4096);
  for (int round = 0; round < 100; ++round) {
    for (const char* key : {"1/", "1/a", "1/b/c", "10/a", "1", "2/a"}) {
      ASSERT_TRUE(state.set(key, std::string(100, 'x')).ok()) << round;
    }
    state.erase("1/");
    EXPECT_FALSE(state.has("1/"));
    EXPECT_FALSE(state.has("1/a"));
    EXPECT_FALSE(state.has("1/b/c"));
    EXPECT_TRUE(state.has("10/a"));
    EXPECT_TRUE(state.has("1"));
    EXPECT_TRUE(state.has("2/a"));
  }
  state.erase("3");
  EXPECT_TRUE(state.has("2/a"));
}

TEST(StoreState, a_full_store_refuses_new_values_and_keeps_the_old) {
  StoreState state;
  const std::string megabyte(1024 * 1024, 'x');
  int stored = 0;
  while (state.set("key" + std::to_string(stored), megabyte).ok()) ++stored;
  EXPECT_EQ(stored, 63);
  EXPECT_TRUE(state.has("key0"));
  EXPECT_TRUE(state.set("key0", "").ok());
  EXPECT_TRUE(state.set("another", megabyte).ok());
  EXPECT_EQ(state.set("one more", megabyte).error().kind, ErrorKind::resource_exhausted);
}

}  // namespace
}  // namespace qccl::bootstrap
