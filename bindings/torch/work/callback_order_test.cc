#include "work/callback_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

namespace qccl::torch_binding {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20000};
constexpr milliseconds kNow{0};

class CallbackOrderTest : public testing::Test {
 protected:
  using Turn = CallbackOrder::TurnPointer;
  using Sequence = std::optional<std::string>;

  // The sequence of a callback with this turn, in a thread of its own; the callback returns then.
  static std::future<Sequence> run(Turn turn, milliseconds limit = kLong) {
    return std::async(std::launch::async, [turn = std::move(turn), limit]() mutable {
      const CallbackOrder::Running running(std::move(turn));
      return CallbackOrder::wait_for_turn(limit);
    });
  }
  // The same for a callback that does not return: its turn stays.
  static Sequence look(const Turn& turn, milliseconds limit = kNow) { return run(turn, limit).get(); }

  CallbackOrder order{"group"};
};

TEST_F(CallbackOrderTest, a_callbacks_turn_comes_when_all_earlier_ones_have_returned) {
  Turn first = order.add();
  Turn second = order.add();
  const Turn third = order.add();
  EXPECT_EQ(look(first), "group/1");
  EXPECT_EQ(look(second), std::nullopt);
  EXPECT_EQ(look(third), std::nullopt);
  second = nullptr;
  EXPECT_EQ(look(third), std::nullopt) << "the first has not returned";
  first = nullptr;
  EXPECT_EQ(look(third), "group/1");
}

TEST_F(CallbackOrderTest, waiting_callbacks_go_on_in_the_order_in_which_they_were_added) {
  Turn first = order.add();
  std::vector<Turn> turns;
  for (int i = 0; i < 50; ++i) turns.push_back(order.add());
  std::vector<int> went_on;
  std::vector<std::future<void>> callbacks;
  for (int i = 49; i >= 0; --i) {
    callbacks.push_back(std::async(std::launch::async, [&went_on, i, turn = std::move(turns[i])]() mutable {
      const CallbackOrder::Running running(std::move(turn));
      if (CallbackOrder::wait_for_turn(kLong)) went_on.push_back(i);
    }));
  }
  first = nullptr;
  for (auto& callback : callbacks) callback.get();
  EXPECT_EQ(went_on.size(), 50U);
  EXPECT_TRUE(std::is_sorted(went_on.begin(), went_on.end()));
}

TEST_F(CallbackOrderTest, a_callback_that_never_runs_holds_up_nobody) {
  Turn dropped = order.add();
  auto later = run(order.add());
  dropped = nullptr;
  EXPECT_EQ(later.get(), "group/1");
}

TEST_F(CallbackOrderTest, callbacks_that_a_callback_adds_come_before_those_that_follow_it) {
  Turn outer = order.add();
  Turn later = order.add();
  Turn inner;
  Turn innermost;
  {
    const CallbackOrder::Running running(std::move(outer));
    inner = order.add();
    EXPECT_EQ(look(inner), "group/2");
    const CallbackOrder::Running nested(inner);
    innermost = order.add();
    EXPECT_EQ(CallbackOrder::wait_for_turn(kNow), "group/2");
  }
  EXPECT_FALSE(CallbackOrder::inside_callback());
  EXPECT_EQ(look(later), std::nullopt);
  inner = nullptr;
  EXPECT_EQ(look(later), std::nullopt) << "the innermost one has not returned";
  EXPECT_EQ(look(innermost), "group/3");
  innermost = nullptr;
  EXPECT_EQ(look(later), "group/1");
}

TEST_F(CallbackOrderTest, a_callback_on_another_order_belongs_to_the_callback_that_added_it) {
  CallbackOrder other("other");
  EXPECT_EQ(CallbackOrder::wait_for_turn(kNow), "");
  const CallbackOrder::Running running(order.add());
  const Turn inner = other.add();
  EXPECT_EQ(look(inner), "group/2");
  EXPECT_EQ(CallbackOrder::wait_for_turn(kNow), "group/1");
}

TEST_F(CallbackOrderTest, a_callback_lets_a_later_one_pass_that_it_waits_for_when_its_own_turn_has_come) {
  Turn first = order.add();
  Turn second = order.add();
  Turn third = order.add();
  Turn fourth = order.add();
  auto waiting = std::async(std::launch::async, [turn = std::move(second), &fourth]() mutable {
    const CallbackOrder::Running running(std::move(turn));
    CallbackOrder::let_pass(fourth);
    return look(fourth);
  });
  EXPECT_EQ(look(fourth), std::nullopt);
  first = nullptr;
  EXPECT_EQ(waiting.get(), "group/2");
  EXPECT_EQ(look(third), std::nullopt);
  fourth = nullptr;
  EXPECT_EQ(look(third), "group/1");
}

TEST_F(CallbackOrderTest, letting_pass_what_comes_anyway_changes_nothing) {
  const Turn outer = order.add();
  const Turn later = order.add();
  CallbackOrder::let_pass(later);  // outside callbacks
  EXPECT_EQ(look(later), std::nullopt);
  const CallbackOrder::Running running(outer);
  const Turn inner = order.add();
  const Turn next = order.add();
  CallbackOrder::let_pass(inner);
  CallbackOrder::let_pass(next);
  CallbackOrder::let_pass(outer);
  CallbackOrder::let_pass(std::weak_ptr<CallbackOrder::Turn>());
  CallbackOrder::let_pass(CallbackOrder("other").add());
  EXPECT_EQ(look(inner), "group/2");
  EXPECT_EQ(look(next), std::nullopt);
}

}  // namespace
}  // namespace qccl::torch_binding
