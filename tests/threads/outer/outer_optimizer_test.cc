// The outer optimizer's rate and settings: saved, taken over by ranks that join, compared between ranks.
#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <thread>

#include "base/digest/digest.h"
#include "support/error_of.h"
#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class OuterRate : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, OuterRate, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

OuterOptions with_rate(const std::shared_ptr<OuterSgd>& sgd) {
  return {.every = 6, .fragments = 2, .delay = 2, .compression = block_int({.bits = 4}), .optimizer = sgd};
}

// From step 5 on the rate is half of what it was.
void train(Communicator& comm, TrainedModel& own, OuterLoop& outer, OuterSgd* scheduled, int until) {
  for (auto step = static_cast<int>(outer.steps()); step < until; ++step) {
    own.train(comm.rank(), step);
    if (scheduled != nullptr) scheduled->set_learning_rate(step < 5 ? 0.7 : 0.35);
    outer.step();
  }
}

TEST_P(OuterRate, that_a_program_has_changed_is_part_of_the_saved_state) {
  for (const int cut : {7, 10}) {  // 7: a round is in flight
    expect_success(2, [=](Communicator& comm) {
      const auto sgd = std::make_shared<OuterSgd>();
      TrainedModel whole(comm.rank());
      OuterLoop outer(comm, whole.parameters(), with_rate(sgd));
      train(comm, whole, outer, sgd.get(), cut);
      const auto saved = outer.save();
      TrainedModel resumed(comm.rank());
      const auto later = std::make_shared<OuterSgd>();
      OuterLoop second(comm, resumed.parameters(), with_rate(later));
      resumed.values = whole.values;
      second.load(saved);
      EXPECT_EQ(later->learning_rate(), 0.35);
      train(comm, whole, outer, sgd.get(), 20);
      train(comm, resumed, second, nullptr, 20);
      EXPECT_EQ(resumed.values, whole.values);
    });
  }
}

TEST_P(OuterRate, that_members_have_changed_is_taken_over_by_a_rank_that_joins) {
  for (const int joins_after : {7, 10}) {  // 7: a round is in flight
    expect_success(3, [=](Communicator& comm) {
      const auto sgd = std::make_shared<OuterSgd>();
      TrainedModel own(comm.rank());
      auto members = comm.split(comm.rank() < 2 ? 0 : -1);
      std::optional<OuterLoop> outer;
      if (members) {
        outer.emplace(*members, own.parameters(), with_rate(sgd));
        train(*members, own, *outer, sgd.get(), joins_after);
        outer->regroup(comm);
      } else {
        outer.emplace(comm, own.parameters(), with_rate(sgd));
        EXPECT_EQ(sgd->learning_rate(), 0.35);
      }
      train(comm, own, *outer, nullptr, 24);
      outer->finish();
      expect_same_bits(comm, *outer);
    });
  }
}

TEST_P(OuterRate, that_differs_between_ranks_fails_them_alike) {
  expect_success(3, [](Communicator& comm) {
    const auto sgd = std::make_shared<OuterSgd>();
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every = 4, .optimizer = sgd});
    train(comm, own, outer, nullptr, 4);
    if (comm.rank() == 1) sgd->set_learning_rate(0.35);
    const ErrorInfo error = error_of([&] { train(comm, own, outer, nullptr, 8); });
    EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
    EXPECT_NE(error.message.find(comm.rank() == 1 ? "this rank's is 0.35" : "this rank's is 0.7"), std::string::npos);
    EXPECT_EQ(outer.rounds(), 1u);
    sgd->set_learning_rate(0.35);
    train(comm, own, outer, nullptr, 12);  // the second round begins at step 9, the third at step 12
    EXPECT_EQ(outer.rounds(), 3u);
    EXPECT_EQ(own.values[0], std::vector<float>(outer.global(0).begin(), outer.global(0).begin() + 9000));
    expect_same_bits(comm, outer);
    EXPECT_EQ(sgd->learning_rate(), 0.35);
  });
}

TEST_P(OuterRate, that_differs_makes_the_next_call_begin_the_round_again_also_by_time) {
  expect_success(2, [](Communicator& comm) {
    const auto sgd = plain_sgd(0.5);
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every_time = Milliseconds(300), .optimizer = sgd});
    if (comm.rank() == 1) sgd->set_learning_rate(0.25);
    while (!outer.begins_round()) std::this_thread::yield();
    EXPECT_EQ(error_of([&] { outer.step(); }).kind, ErrorKind::invalid_argument);
    EXPECT_TRUE(outer.begins_round());
  });
}

// What was trained before the error counts in the round that is begun again.
TEST_P(OuterRate, that_differs_loses_no_samples) {
  for (const bool is_weighted : {false, true}) {
    expect_success(2, [=](Communicator& comm) {
      const auto sgd = plain_sgd(0.5);
      std::vector<float> own(1, 0.0F);
      OuterLoop outer(
          comm, {OuterParameter::of("x", own)},
          {.every = 2, .compression = block_int({.bits = 4}), .is_weighted = is_weighted, .optimizer = sgd});
      if (comm.rank() == 1) sgd->set_learning_rate(0.25);
      own[0] = comm.rank() == 0 ? 8.0F : 0.0F;
      outer.step(comm.rank() == 0 ? 30 : 10);
      EXPECT_EQ(error_of([&] { outer.step(0); }).kind, ErrorKind::invalid_argument);
      sgd->set_learning_rate(0.5);
      outer.finish();
      EXPECT_NEAR(outer.global(0)[0], is_weighted ? 3.0 : 2.0, 0.05);
    });
  }
}

// The round's calls have ended when the ranks regroup, before they were waited for.
TEST_P(OuterRate, that_differs_fails_ranks_that_regrouped_meanwhile) {
  expect_success(2, [](Communicator& comm) {
    const auto sgd = std::make_shared<OuterSgd>();
    TrainedModel own(comm.rank());
    OuterLoop outer(comm.dup(), own.parameters(), with_rate(sgd));
    if (comm.rank() == 1) sgd->set_learning_rate(0.35);
    train(comm, own, outer, nullptr, 4);
    Communicator(outer.group()).barrier();
    outer.regroup(comm.dup());
    EXPECT_EQ(outer.rounds(), 0u);
    EXPECT_EQ(error_of([&] { train(comm, own, outer, nullptr, 5); }).kind, ErrorKind::invalid_argument);
    sgd->set_learning_rate(0.35);
    train(comm, own, outer, nullptr, 8);
    EXPECT_EQ(outer.rounds(), 1u);
    expect_same_bits(comm, outer);
  });
}

TEST_P(OuterRate, that_differs_is_noticed_where_16_bits_of_its_digest_are_equal) {
  const auto low_bits = [](double rate) { return digest(std::bit_cast<std::uint64_t>(rate), 0) & 0xFFFF; };
  double other = 0.7;
  do other += 1e-6;
  while (low_bits(other) != low_bits(0.7));
  expect_success(2, [=](Communicator& comm) {
    const auto sgd = std::make_shared<OuterSgd>();
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every = 1, .optimizer = sgd});
    if (comm.rank() == 1) sgd->set_learning_rate(other);
    EXPECT_EQ(error_of([&] { outer.step(); }).kind, ErrorKind::invalid_argument);
  });
}

TEST_P(OuterRate, may_change_at_different_moments_of_a_round) {
  expect_success(2, [](Communicator& comm) {
    const auto sgd = std::make_shared<OuterSgd>();
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every = 4, .delay = 2, .optimizer = sgd});
    train(comm, own, outer, nullptr, 5);
    if (comm.rank() == 1) sgd->set_learning_rate(0.35);
    train(comm, own, outer, nullptr, 6);
    EXPECT_EQ(outer.rounds(), 1u);
    expect_same_bits(comm, outer);
    EXPECT_EQ(sgd->learning_rate(), comm.rank() == 1 ? 0.35 : 0.7);
    sgd->set_learning_rate(0.35);
    train(comm, own, outer, nullptr, 12);
    expect_same_bits(comm, outer);
  });
}

TEST_P(OuterRate, settings_must_be_equal_on_all_ranks) {
  class Other final : public train::OuterOptimizer {
    void step(std::size_t, std::span<float>, std::span<const float>) override {}
    std::vector<std::byte> save(std::size_t) const override { return {}; }
    void load(std::size_t, std::span<const std::byte>) override {}
  };
  const std::vector<std::shared_ptr<train::OuterOptimizer>> others = {
      std::make_shared<OuterSgd>(train::OuterSgdOptions{.learning_rate = 0.5}),
      std::make_shared<OuterSgd>(train::OuterSgdOptions{.momentum = 0.8}),
      std::make_shared<OuterSgd>(train::OuterSgdOptions{.nesterov = false}),
      std::make_shared<Other>(),
  };
  for (const auto& other : others) {
    expect_success(2, [&](Communicator& comm) {
      TrainedModel own(comm.rank());
      const ErrorInfo error = error_of([&] {
        OuterLoop(comm, own.parameters(), {.optimizer = comm.rank() == 1 ? other : std::make_shared<OuterSgd>()});
      });
      EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
      EXPECT_NE(error.message.find("rank 1 has other options"), std::string::npos) << error.message;
    });
  }
}

// One value, of which every number is exact. The rate falls from 1, at which the models themselves are averaged.
TEST_P(OuterRate, of_1_without_momentum_may_change_later) {
  for (const std::uint64_t delay : {0u, 1u}) {
    expect_success(2, [=](Communicator& comm) {
      const auto sgd = averaging();
      std::vector<float> own(1, 0.0F);
      OuterLoop outer(comm, {OuterParameter::of("x", own)}, {.every = 2, .delay = delay, .optimizer = sgd});
      float expected = 0;
      for (int step = 1; step <= 8; ++step) {
        own[0] += comm.rank() == 0 ? 1.0F : 3.0F;
        // With a delay, the round that began at step 4 ends at the old rate.
        sgd->set_learning_rate(step < 5 ? 1 : 0.25);
        outer.step();
        const bool ends = delay == 0 ? step % 2 == 0 : step % 2 == 1 && step > 1;
        if (ends && delay == 0) expected += (step < 5 ? 1.0F : 0.25F) * 4;
        if (ends && delay == 1) expected += (step < 6 ? 1.0F : 0.25F) * (step == 3 ? 4.0F : 2.0F);
        EXPECT_EQ(outer.global(0)[0], expected) << "step " << step;
      }
    });
  }
}

}  // namespace
}  // namespace qccl::testing
