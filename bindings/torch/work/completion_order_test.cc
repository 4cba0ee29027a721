#include "work/completion_order.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace qccl::torch_binding {
namespace {

// The completed tickets, in order; thread-safe.
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

class CompletionOrderTest : public testing::Test {
 protected:
  // Takes a ticket that logs its name when it is completed.
  CompletionOrder::TicketPointer take(const std::string& name) {
    return order.take_ticket([this, name] { log.add(name); });
  }

  CompletionOrder order{"group"};
  Log log;
};

TEST_F(CompletionOrderTest, tickets_are_completed_in_the_order_they_were_taken) {
  const auto a = take("a");
  const auto b = take("b");
  const auto c = take("c");
  CompletionOrder::ended(c);
  CompletionOrder::ended(b);
  EXPECT_EQ(log.entries(), "");
  CompletionOrder::ended(a);
  EXPECT_EQ(log.entries(), "a b c");
}

TEST_F(CompletionOrderTest, any_order_of_ends_gives_the_same_order_of_completions) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int> completed;
    std::vector<CompletionOrder::TicketPointer> tickets;
    for (int i = 0; i < 8; ++i) tickets.push_back(order.take_ticket([&, i] { completed.push_back(i); }));
    std::shuffle(tickets.begin(), tickets.end(), random);
    for (const auto& ticket : tickets) CompletionOrder::ended(ticket);
    EXPECT_EQ(completed, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST_F(CompletionOrderTest, callback_waits_for_a_ticket_it_took_while_later_ones_wait_for_it) {
  std::promise<CompletionOrder::TicketPointer> taken;
  std::promise<void> inner_completed;
  const auto outer = order.take_ticket([&] {
    log.add("outer");
    taken.set_value(order.take_ticket([&] {
      log.add("inner");
      inner_completed.set_value();
    }));
    inner_completed.get_future().wait();
    log.add("outer-returns");
  });
  const auto later = take("later");
  CompletionOrder::ended(later);
  std::thread pool([&] { CompletionOrder::ended(outer); });
  CompletionOrder::ended(taken.get_future().get());
  pool.join();
  EXPECT_EQ(log.entries(), "outer inner outer-returns later");
}

TEST_F(CompletionOrderTest, tickets_a_callback_leaves_behind_come_before_those_that_follow_it) {
  CompletionOrder::TicketPointer left_behind;
  const auto outer = order.take_ticket([&] { left_behind = take("left-behind"); });
  const auto later = take("later");
  CompletionOrder::ended(outer);
  CompletionOrder::ended(later);
  EXPECT_EQ(log.entries(), "");
  CompletionOrder::ended(left_behind);
  EXPECT_EQ(log.entries(), "left-behind later");
}

TEST_F(CompletionOrderTest, callback_may_complete_a_later_ticket_it_waits_for) {
  CompletionOrder::TicketPointer later;
  const auto first = order.take_ticket([&] {
    CompletionOrder::complete_inside_callback(later);
    CompletionOrder::complete_inside_callback(later);
    log.add("first");
  });
  later = take("later");
  const auto last = take("last");
  CompletionOrder::complete_inside_callback(later);
  EXPECT_EQ(log.entries(), "") << "outside callbacks it does nothing";
  CompletionOrder::ended(last);
  CompletionOrder::ended(first);
  EXPECT_EQ(log.entries(), "later first last");
  CompletionOrder::ended(later);
  EXPECT_EQ(log.entries(), "later first last");
}

TEST_F(CompletionOrderTest, first_ticket_is_completed_at_once_and_others_in_their_turn) {
  const auto a = take("a");
  EXPECT_FALSE(CompletionOrder::complete_at_once(a));
  EXPECT_EQ(log.entries(), "a");
  const auto b = take("b");
  const auto c = take("c");
  EXPECT_TRUE(CompletionOrder::complete_at_once(c));
  EXPECT_EQ(log.entries(), "a") << "b comes first";
  CompletionOrder::ended(c);
  CompletionOrder::ended(b);
  EXPECT_EQ(log.entries(), "a b c");
}

TEST_F(CompletionOrderTest, completing_at_once_completes_nothing_else_and_says_so) {
  CompletionOrder::TicketPointer later;
  const auto ticket = order.take_ticket([&] {
    log.add("ticket");
    // Another thread adds a ticket meanwhile, outside the callback.
    std::thread([&] {
      later = take("later");
      CompletionOrder::ended(later);
    }).join();
  });
  EXPECT_TRUE(CompletionOrder::complete_at_once(ticket));
  EXPECT_EQ(log.entries(), "ticket");
  CompletionOrder::ended(ticket);
  EXPECT_EQ(log.entries(), "ticket later");
}

TEST_F(CompletionOrderTest, tickets_taken_after_the_announcement_do_not_come_behind_the_ticket) {
  const auto add_at_once = [&] {
    const auto next = take("next");
    EXPECT_FALSE(CompletionOrder::complete_at_once(next));
  };
  CompletionOrder::ended(order.take_ticket([&] { log.add("ticket"); }, add_at_once));
  EXPECT_EQ(log.entries(), "ticket next");
}

TEST_F(CompletionOrderTest, a_callback_completes_its_own_tickets_at_once) {
  const auto outer = order.take_ticket([&] {
    log.add("outer");
    const auto inner = order.take_ticket([&] { log.add(CompletionOrder::current_sequence()); });
    EXPECT_FALSE(CompletionOrder::complete_at_once(inner));
    log.add("outer-returns");
  });
  EXPECT_FALSE(CompletionOrder::complete_at_once(outer));
  EXPECT_EQ(log.entries(), "outer group/2 outer-returns");
}

TEST_F(CompletionOrderTest, sequences_are_named_by_order_and_depth) {
  CompletionOrder other("other");
  EXPECT_EQ(CompletionOrder::current_sequence(), "");
  const auto ticket = order.take_ticket([&] {
    log.add(CompletionOrder::current_sequence());
    // Taken inside a callback, so it belongs to the callback's order.
    const auto inner = other.take_ticket([&] { log.add(CompletionOrder::current_sequence()); });
    CompletionOrder::complete_inside_callback(inner);
    log.add(CompletionOrder::current_sequence());
  });
  CompletionOrder::ended(ticket);
  EXPECT_EQ(log.entries(), "group/1 group/2 group/1");
  EXPECT_EQ(CompletionOrder::current_sequence(), "");
}

}  // namespace
}  // namespace qccl::torch_binding
