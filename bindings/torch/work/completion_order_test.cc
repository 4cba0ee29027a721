#include "work/completion_order.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace qccl::torch_binding {
namespace {

// The completed places, in order; thread-safe.
class Log {
 public:
  void add(const std::string& entry) {
    const std::lock_guard lock(mutex_);
    entries_ += (entries_.empty() ? "" : " ") + entry;
  }
  std::string entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  mutable std::mutex mutex_;
  std::string entries_;
};

TEST(CompletionOrder, places_are_completed_in_the_order_they_were_taken) {
  CompletionOrder order("group");
  Log log;
  const auto a = order.take_place([&] { log.add("a"); });
  const auto b = order.take_place([&] { log.add("b"); });
  const auto c = order.take_place([&] { log.add("c"); });
  CompletionOrder::ended(c);
  CompletionOrder::ended(b);
  EXPECT_EQ(log.entries(), "");
  CompletionOrder::ended(a);
  EXPECT_EQ(log.entries(), "a b c");
}

TEST(CompletionOrder, any_order_of_ends_gives_the_same_order_of_completions) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    CompletionOrder order("group");
    std::vector<int> completed;
    std::vector<CompletionOrder::PlacePointer> places;
    for (int i = 0; i < 8; ++i) places.push_back(order.take_place([&, i] { completed.push_back(i); }));
    std::shuffle(places.begin(), places.end(), random);
    for (const auto& place : places) CompletionOrder::ended(place);
    EXPECT_EQ(completed, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(CompletionOrder, callback_waits_for_a_place_it_took_while_later_ones_wait_for_it) {
  CompletionOrder order("group");
  Log log;
  std::promise<CompletionOrder::PlacePointer> taken;
  std::promise<void> inner_completed;
  const auto outer = order.take_place([&] {
    log.add("outer");
    taken.set_value(order.take_place([&] {
      log.add("inner");
      inner_completed.set_value();
    }));
    inner_completed.get_future().wait();
    log.add("outer-returns");
  });
  const auto later = order.take_place([&] { log.add("later"); });
  CompletionOrder::ended(later);
  std::thread pool([&] { CompletionOrder::ended(outer); });
  CompletionOrder::ended(taken.get_future().get());
  pool.join();
  EXPECT_EQ(log.entries(), "outer inner outer-returns later");
}

TEST(CompletionOrder, what_a_callback_leaves_behind_comes_before_what_follows_it) {
  CompletionOrder order("group");
  Log log;
  CompletionOrder::PlacePointer left_behind;
  const auto outer = order.take_place([&] { left_behind = order.take_place([&] { log.add("left-behind"); }); });
  const auto later = order.take_place([&] { log.add("later"); });
  CompletionOrder::ended(outer);
  CompletionOrder::ended(later);
  EXPECT_EQ(log.entries(), "");
  CompletionOrder::ended(left_behind);
  EXPECT_EQ(log.entries(), "left-behind later");
}

TEST(CompletionOrder, callback_may_complete_a_later_place_it_waits_for) {
  CompletionOrder order("group");
  Log log;
  CompletionOrder::PlacePointer later;
  const auto first = order.take_place([&] {
    CompletionOrder::complete_inside_callback(later);
    CompletionOrder::complete_inside_callback(later);
    log.add("first");
  });
  later = order.take_place([&] { log.add("later"); });
  const auto last = order.take_place([&] { log.add("last"); });
  CompletionOrder::complete_inside_callback(later);
  EXPECT_EQ(log.entries(), "") << "outside callbacks it does nothing";
  CompletionOrder::ended(last);
  CompletionOrder::ended(first);
  EXPECT_EQ(log.entries(), "later first last");
  CompletionOrder::ended(later);
  EXPECT_EQ(log.entries(), "later first last");
}

TEST(CompletionOrder, first_place_is_completed_at_once_and_others_in_their_turn) {
  CompletionOrder order("group");
  Log log;
  const auto a = order.take_place([&] { log.add("a"); });
  EXPECT_FALSE(CompletionOrder::complete_at_once(a));
  EXPECT_EQ(log.entries(), "a");
  const auto b = order.take_place([&] { log.add("b"); });
  const auto c = order.take_place([&] { log.add("c"); });
  EXPECT_TRUE(CompletionOrder::complete_at_once(c));
  EXPECT_EQ(log.entries(), "a") << "b comes first";
  CompletionOrder::ended(c);
  CompletionOrder::ended(b);
  EXPECT_EQ(log.entries(), "a b c");
}

TEST(CompletionOrder, completing_at_once_completes_nothing_else_and_says_so) {
  CompletionOrder order("group");
  Log log;
  CompletionOrder::PlacePointer later;
  const auto place = order.take_place([&] {
    log.add("place");
    // Another thread adds a place meanwhile, outside the callback.
    std::thread([&] {
      later = order.take_place([&] { log.add("later"); });
      CompletionOrder::ended(later);
    }).join();
  });
  EXPECT_TRUE(CompletionOrder::complete_at_once(place));
  EXPECT_EQ(log.entries(), "place");
  CompletionOrder::ended(place);
  EXPECT_EQ(log.entries(), "place later");
}

TEST(CompletionOrder, what_is_added_after_the_announcement_does_not_come_behind_the_place) {
  CompletionOrder order("group");
  Log log;
  const auto add_at_once = [&] {
    const auto next = order.take_place([&] { log.add("next"); });
    EXPECT_FALSE(CompletionOrder::complete_at_once(next));
  };
  CompletionOrder::ended(order.take_place([&] { log.add("place"); }, add_at_once));
  EXPECT_EQ(log.entries(), "place next");
}

TEST(CompletionOrder, a_callback_completes_its_own_places_at_once) {
  CompletionOrder order("group");
  Log log;
  const auto outer = order.take_place([&] {
    log.add("outer");
    const auto inner = order.take_place([&] { log.add(CompletionOrder::current_sequence()); });
    EXPECT_FALSE(CompletionOrder::complete_at_once(inner));
    log.add("outer-returns");
  });
  EXPECT_FALSE(CompletionOrder::complete_at_once(outer));
  EXPECT_EQ(log.entries(), "outer group/2 outer-returns");
}

TEST(CompletionOrder, sequences_are_named_by_order_and_depth) {
  CompletionOrder order("group");
  CompletionOrder other("other");
  EXPECT_EQ(CompletionOrder::current_sequence(), "");
  Log log;
  const auto place = order.take_place([&] {
    log.add(CompletionOrder::current_sequence());
    // Taken inside a callback, so it belongs to the callback's order.
    const auto inner = other.take_place([&] { log.add(CompletionOrder::current_sequence()); });
    CompletionOrder::complete_inside_callback(inner);
    log.add(CompletionOrder::current_sequence());
  });
  CompletionOrder::ended(place);
  EXPECT_EQ(log.entries(), "group/1 group/2 group/1");
  EXPECT_EQ(CompletionOrder::current_sequence(), "");
}

}  // namespace
}  // namespace qccl::torch_binding
