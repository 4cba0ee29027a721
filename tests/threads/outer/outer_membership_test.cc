// OuterLoop in groups with ranks that were not in the ones before, or not in all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "support/error_of.h"
#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class OuterMembership : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, OuterMembership, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kCount = 30'000;

void move(Values& values, int rank) {
  for (float& x : values) x += static_cast<float>(rank + 1);
}

// An optimizer that averages, and fails in these of its steps.
std::shared_ptr<WatchedOptimizer> failing_in(int first, int last) {
  auto optimizer = std::make_shared<WatchedOptimizer>();
  optimizer->before = [=, steps = 0]() mutable {
    ++steps;
    if (steps >= first && steps <= last) throw Error({.kind = ErrorKind::aborted, .message = "a test"});
  };
  return optimizer;
}

// The third rank has a round in flight, which its group has lost, when the others go on without it.
TEST_P(OuterMembership, a_rank_that_missed_several_rounds_takes_all_over) {
  for (const bool is_in_flight : {false, true}) {
    expect_success(3, [=](Communicator& comm) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm.dup(), own.parameters(),
                      {.every = 8, .fragments = 4, .delay = 1, .compression = block_int({.bits = 4}), .go_on = false});
      const auto train_until = [&](std::uint64_t end) {
        while (outer.steps() < end) {
          own.train(comm.rank(), static_cast<int>(outer.steps()));
          outer.step();
        }
      };
      train_until(9);
      comm.barrier();
      Communicator(outer.group()).abort("a test");
      EXPECT_EQ(error_of([&] { train_until(11); }).kind, ErrorKind::aborted);
      auto members = comm.split(comm.rank() < 2 ? 0 : -1);
      if (members) {
        outer.regroup(*members);
        train_until(20);
        if (!is_in_flight) outer.finish();
      }
      outer.regroup(comm.dup());
      EXPECT_EQ(outer.steps(), 20u);
      expect_same_bits(comm, outer);
      if (!is_in_flight) {  // none has trained since, the third rank's steps before do not count
        const Values before(outer.global(1).begin(), outer.global(1).end());
        outer.finish();
        EXPECT_TRUE(std::ranges::equal(before, outer.global(1)));
      }
      for (std::uint64_t step = 21; step < 40; ++step) {
        train_until(step);
        expect_same_bits(comm, outer);
      }
      outer.finish();
      expect_same_bits(comm, outer);
    });
  }
}

// The first round begins in step 4 and can't end: the third rank's group is lost before both it and the others have
// posted. They repeat the round without it. Averaging, so that the model tells what has counted.
TEST_P(OuterMembership, a_rank_that_missed_one_round_brings_its_training_to_the_next) {
  struct Case {
    std::uint64_t others_were_at, third_was_at, third_went_on_to;
  };
  for (const Case each : {Case{5, 3, 3}, Case{5, 3, 4}, Case{3, 5, 6}}) {
    expect_success(3, [=](Communicator& comm) {
      const bool is_third = comm.rank() == 2;
      Values own(kCount, 1.0F), statistics(10);
      auto parameters = std::vector{OuterParameter::of("p.weight", own), OuterParameter::of("p.mean", statistics)};
      parameters[1].is_averaged = true;
      const auto sgd = averaging();
      OuterLoop outer(comm.dup(), parameters, {.every = 4, .delay = 2, .optimizer = sgd, .go_on = false});
      std::ranges::fill(statistics, static_cast<float>(comm.rank()));
      const auto train_until = [&](std::uint64_t end) {
        while (outer.steps() < end) {
          for (float& x : own) x += static_cast<float>(1 << (4 * comm.rank()));
          outer.step();
        }
      };
      train_until(is_third ? each.third_was_at : each.others_were_at);
      comm.barrier();
      Communicator(outer.group()).abort("a test");
      comm.barrier();
      const std::uint64_t end = is_third ? each.third_went_on_to : 6;
      if (outer.steps() < end) {
        EXPECT_EQ(error_of([&] { train_until(end); }).kind, ErrorKind::aborted);
      }
      auto members = comm.split(is_third ? -1 : 0);
      if (members) {
        outer.regroup(*members);
        train_until(6);
        sgd->set_learning_rate(0.5);
      }
      outer.regroup(comm.dup());
      EXPECT_EQ(sgd->learning_rate(), 0.5);
      sgd->set_learning_rate(1);
      expect_same_bits(comm, outer);
      EXPECT_EQ(outer.rounds(), 1u);
      const float global = 1 + 4 * 8.5F;
      EXPECT_EQ(own[0], is_third ? global + 256.0F * static_cast<float>(each.third_went_on_to) : global);
      EXPECT_EQ(statistics[0], 0.5F);
      EXPECT_EQ(outer.steps(), 6u) << "those of the others";
      outer.finish();
      expect_same_bits(comm, outer);
      EXPECT_FLOAT_EQ(own[0], global + 256.0F * static_cast<float>(each.third_went_on_to) / 3);
    });
  }
}

TEST_P(OuterMembership, a_rank_that_missed_one_round_is_in_the_next_one_that_is_in_flight) {
  expect_success(3, [](Communicator& comm) {
    const auto sgd = averaging();
    Values own(kCount, 1.0F);
    OuterLoop outer(comm.dup(), {OuterParameter::of("p", own)},
                    {.every = 4, .delay = 4, .optimizer = sgd, .go_on = false});
    const auto train_until = [&](std::uint64_t end) {
      while (outer.steps() < end) {
        move(own, comm.rank());
        outer.step();
      }
    };
    train_until(3);
    auto members = comm.split(comm.rank() == 2 ? -1 : 0);
    if (members) {
      outer.regroup(*members);
      train_until(comm.rank() == 0 ? 9 : 7);  // the first rank has begun the second round in step 8
      if (comm.rank() == 0) sgd->set_learning_rate(0.5);
    }
    outer.regroup(comm.dup());
    EXPECT_EQ(outer.rounds(), 1u);
    EXPECT_EQ(outer.rounds_begun(), comm.rank() == 1 ? 1u : 2u);
    EXPECT_EQ(outer.steps(), comm.rank() == 1 ? 7u : 9u);
    train_until(12);
    EXPECT_EQ(outer.rounds(), 2u);
    expect_same_bits(comm, outer);
  });
}

// finish() promises it the same model as all others have.
TEST_P(OuterMembership, a_rank_whose_finish_the_others_ended_without_it_takes_their_model) {
  expect_success(3, [](Communicator& comm) {
    Values own(kCount, 1.0F);
    OuterLoop outer(comm.dup(), {OuterParameter::of("p", own)}, {.every = 4, .go_on = false});
    move(own, comm.rank());
    outer.step();
    comm.barrier();
    Communicator(outer.group()).abort("a test");
    EXPECT_EQ(error_of([&] { outer.finish(); }).kind, ErrorKind::aborted);
    auto members = comm.split(comm.rank() == 2 ? -1 : 0);
    if (members) outer.regroup(*members);
    outer.regroup(comm.dup());
    EXPECT_EQ(outer.rounds(), 1u);
    expect_same_bits(comm, outer);
    EXPECT_TRUE(std::ranges::equal(own, outer.global(0)));
  });
}

// The others have ended one of its two rounds in finish() without the third rank, which then calls finish() as well.
TEST_P(OuterMembership, finish_waits_for_the_training_of_a_rank_that_missed_one_of_its_rounds) {
  expect_success(3, [](Communicator& comm) {
    Values first(kCount, 1.0F), second(kCount, 1.0F);
    OuterLoop outer(comm.dup(), {OuterParameter::of("a.0", first), OuterParameter::of("a.1", second)},
                    {.every = 8, .fragments = 2, .optimizer = failing_in(2, comm.rank() == 2 ? 0 : 2), .go_on = false});
    move(first, comm.rank());
    move(second, comm.rank());
    outer.step();
    comm.barrier();
    auto members = comm.split(comm.rank() == 2 ? -1 : 0);
    if (members) {
      outer.regroup(*members);
      EXPECT_EQ(error_of([&] { outer.finish(); }).kind, ErrorKind::aborted);
      EXPECT_EQ(outer.rounds(), 1u);
    }
    outer.regroup(comm.dup());
    if (!members) outer.finish();
    expect_same_bits(comm, outer);
    EXPECT_TRUE(std::ranges::equal(first, outer.global(0)));
    EXPECT_TRUE(std::ranges::equal(second, outer.global(1)));
    EXPECT_FLOAT_EQ(first[0], 1 + 1.5F + 1);
    EXPECT_FLOAT_EQ(second[0], 1 + 2);
  });
}

// A round ended on the third rank alone, with the deltas of all. The others repeated it without that rank, which has
// ended as many rounds as they, or one less.
TEST_P(OuterMembership, a_rank_with_another_round_of_the_same_number_takes_all_over) {
  for (const std::uint64_t steps : {2, 4}) {
    expect_success(3, [=](Communicator& comm) {
      Values first(kCount, 1.0F), second(kCount, 1.0F);
      OuterLoop outer(
          comm.dup(), {OuterParameter::of("a.0", first), OuterParameter::of("a.1", second)},
          {.every = 4, .fragments = 2, .optimizer = failing_in(1, comm.rank() == 2 ? 0 : 1), .go_on = false});
      const auto train_until = [&](std::uint64_t end) {
        while (outer.steps() < end) {
          move(first, comm.rank());
          move(second, comm.rank());
          outer.step();
        }
      };
      auto members = comm.split(comm.rank() == 2 ? -1 : 0);
      if (members) {
        EXPECT_EQ(error_of([&] { train_until(2); }).kind, ErrorKind::aborted);
        outer.regroup(*members);
        train_until(steps);
      } else {
        train_until(2);
        EXPECT_FLOAT_EQ(outer.global(0)[0], 1 + 4);
      }
      outer.regroup(comm.dup());
      EXPECT_EQ(outer.rounds(), steps / 2);
      expect_same_bits(comm, outer);
      EXPECT_FLOAT_EQ(outer.global(0)[0], 1 + 3);
      EXPECT_EQ(first[0], outer.global(0)[0] + static_cast<float>(members ? (steps - 2) * (comm.rank() + 1) : 0));
    });
  }
}

// A round ended on the third rank alone. The others began it again without that rank, and failed again.
TEST_P(OuterMembership, a_round_that_was_posted_in_several_groups_counts_once) {
  for (const auto& compression : {none(), block_int({.bits = 4})}) {
    expect_success(3, [=](Communicator& comm) {
      Values own(kCount, 1.0F);
      OuterLoop outer(comm.dup(), {OuterParameter::of("p", own)},
                      {.every = 1,
                       .compression = compression,
                       .optimizer = failing_in(1, comm.rank() == 2 ? 0 : 2),
                       .go_on = false});
      move(own, comm.rank());
      auto members = comm.split(comm.rank() == 2 ? -1 : 0);
      if (members) {
        EXPECT_EQ(error_of([&] { outer.step(); }).kind, ErrorKind::aborted);
        EXPECT_EQ(error_of([&] { outer.regroup(*members); }).kind, ErrorKind::aborted);
      } else {
        outer.step();
      }
      outer.regroup(comm.dup());
      EXPECT_EQ(outer.rounds(), 1u);
      EXPECT_NEAR(outer.global(0)[0], 1 + 2, 0.05);
      EXPECT_TRUE(std::ranges::equal(own, outer.global(0)));
      // Only the third rank knows what compression left out of the round.
      const bool is_zero = members.has_value() || compression.is_none();
      EXPECT_EQ(std::ranges::all_of(outer.residual(0), [](float x) { return x == 0; }), is_zero);
      outer.step();
      EXPECT_NEAR(outer.global(0)[0], 1 + 2, 0.05);
    });
  }
}

// The third rank alone has ended rounds, and is lost when two others have taken over half of what it has. The fourth
// comes later, and has ended as many rounds as they: none.
TEST_P(OuterMembership, ranks_whose_source_is_lost_go_on_with_what_they_have_alike) {
  std::latch taken(2);
  expect_success(4, [&](Communicator& comm) {
    const auto optimizer = std::make_shared<WatchedOptimizer>();
    Values first(kCount, 1.0F), second(kCount, 1.0F);
    OuterLoop outer(comm.dup(), {OuterParameter::of("a.0", first), OuterParameter::of("a.1", second)},
                    {.every = 2, .fragments = 2, .optimizer = optimizer, .go_on = false});
    auto with_fourth = comm.split(comm.rank() == 2 ? -1 : 0);
    auto members = comm.split(comm.rank() < 2 ? 0 : comm.rank());
    auto first_three = comm.split(comm.rank() < 3 ? 0 : -1);
    if (comm.rank() == 3) {
      outer.regroup(*with_fourth);
      expect_same_bits(*with_fourth, outer);
      EXPECT_FLOAT_EQ(first[0], 1 + 7 * 3);
      outer.finish();
      return;
    }
    if (comm.rank() == 2) outer.regroup(*members);
    for (int step = 0; step < (comm.rank() == 2 ? 8 : 0); ++step) {
      move(first, comm.rank());
      move(second, comm.rank());
      outer.step();
    }
    if (comm.rank() < 2) move(first, comm.rank());
    optimizer->before_load = [&] { taken.count_down(); };
    optimizer->before_save = [&, saves = 0]() mutable {
      if (++saves < 2) return;
      taken.wait();
      throw Error({.kind = ErrorKind::aborted, .message = "a test"});
    };
    EXPECT_EQ(error_of([&] {
                try {
                  outer.regroup(*first_three);
                } catch (const Error&) {
                  Communicator(outer.group()).abort("a test");
                  throw;
                }
              }).kind,
              ErrorKind::aborted);
    if (comm.rank() == 2) return;
    optimizer->before_load = optimizer->before_save = [] {};
    outer.regroup(*members);
    expect_same_bits(*members, outer);
    EXPECT_TRUE(std::ranges::equal(first, outer.global(0)));
    EXPECT_FLOAT_EQ(first[0], 1 + 7 * 3);
    EXPECT_EQ(second[0], 1);
    outer.regroup(*with_fourth);
    expect_same_bits(*with_fourth, outer);
    outer.finish();
    EXPECT_FLOAT_EQ(first[0], 1 + 7 * 3);
  });
}

TEST_P(OuterMembership, states_that_were_saved_after_different_rounds_are_an_error_on_all_ranks) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    const OuterOptions options{.every = 8, .fragments = 2};  // of different sizes
    OuterLoop outer(comm.dup(), own.parameters(), options);
    const auto train = [&](OuterLoop& loop, int steps) {
      for (int i = 0; i < steps; ++i) {
        own.train(comm.rank(), static_cast<int>(loop.steps()));
        loop.step();
      }
    };
    train(outer, 4);
    auto saved = outer.save();
    train(outer, 4);
    if (comm.rank() == 1) saved = outer.save();
    OuterLoop resumed(comm.dup(), own.parameters(), options);
    resumed.load(saved);
    const ErrorInfo error = error_of([&] { train(resumed, 4); });
    EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
    EXPECT_NE(error.message.find(comm.rank() == 1 ? "has ended 2 rounds" : "has ended 1 rounds"), std::string::npos)
        << error.message;
  });
}

TEST_P(OuterMembership, a_rank_that_did_not_load_fails_with_those_that_did) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    OuterLoop outer(comm.dup(), own.parameters(), {.every = 4});
    own.train(comm.rank(), 1);
    outer.finish();
    const auto saved = outer.save();
    OuterLoop resumed(comm.dup(), own.parameters(), {.every = 4});
    if (comm.rank() == 0) resumed.load(saved);
    own.train(comm.rank(), 2);
    EXPECT_EQ(error_of([&] { resumed.finish(); }).kind, ErrorKind::invalid_argument);
  });
}

TEST_P(OuterMembership, a_loaded_state_is_not_in_a_finish_that_failed) {
  expect_success(2, [](Communicator& comm) {
    const auto sgd = std::make_shared<OuterSgd>();
    TrainedModel own(comm.rank());
    OuterLoop outer(comm.dup(), own.parameters(), {.every = 4, .optimizer = sgd});
    const auto saved = outer.save();
    own.train(comm.rank(), 1);
    outer.step();
    if (comm.rank() == 1) sgd->set_learning_rate(0.35);
    EXPECT_EQ(error_of([&] { outer.finish(); }).kind, ErrorKind::invalid_argument);
    EXPECT_TRUE(outer.begins_round());
    outer.load(saved);
    EXPECT_FALSE(outer.begins_round());
  });
}

// It has ended for the other ranks as well.
TEST_P(OuterMembership, a_round_has_ended_even_if_the_parameters_can_not_be_written) {
  expect_success(2, [](Communicator& comm) {
    Values own(kCount, 1.0F);
    bool fails = false;
    OuterParameter parameter = OuterParameter::of("p", own);
    parameter.store = [&, store = parameter.store](std::span<const float> from) {
      if (fails) throw std::bad_alloc();
      store(from);
    };
    OuterLoop outer(comm.dup(), {parameter}, {.every = 1, .optimizer = averaging()});
    fails = comm.rank() == 1;
    move(own, comm.rank());
    try {
      outer.step();
      EXPECT_FALSE(fails);
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(std::exchange(fails, false));
    }
    EXPECT_EQ(outer.rounds(), 1u);
    outer.step();
    EXPECT_EQ(outer.rounds(), 2u);
    EXPECT_EQ(own[0], 1 + 1.5F);
    EXPECT_TRUE(std::ranges::equal(own, outer.global(0)));
  });
}

// A rank that waits for a slower one begins its next round so much later, and trains in between.
TEST_P(OuterMembership, rounds_by_time_leave_a_fast_rank_time_to_train) {
  expect_success(2, [](Communicator& comm) {
    Values own(10, 1.0F);
    OuterLoop outer(comm.dup(), {OuterParameter::of("p", own)}, {.every_time = Milliseconds(20)});
    while (outer.rounds() < 10) {
      const std::uint64_t before = outer.rounds();
      if (comm.rank() == 1) std::this_thread::sleep_for(Milliseconds(30));  // a slow step
      outer.step();
      EXPECT_LE(outer.rounds(), before + 1);
    }
  });
}

}  // namespace
}  // namespace qccl::testing
