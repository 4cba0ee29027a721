#include "completion_order.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace qccl::torch_binding {
namespace {

// What was completed, in order; thread-safe.
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
