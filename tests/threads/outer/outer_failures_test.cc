// OuterLoop after failures at any moment, where rounds end on some ranks and fail on others; and its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <random>
#include <thread>

#include "support/error_of.h"
#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class OuterFailures : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, OuterFailures, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kCount = 30'000;

void train(Values& values, int rank, int step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::normal_distribution<float> normal(0, 0.01F);
  for (float& x : values) x += normal(random);
}

// The averaged values take longer than the compressed deltas: a round may fail after the deltas' call has ended.
constexpr std::size_t kStatistics = 200'000;

std::vector<OuterParameter> with_statistics(Values& own, Values& statistics) {
  auto parameters = std::vector{OuterParameter::of("p.weight", own), OuterParameter::of("p.mean", statistics)};
  parameters[1].is_averaged = true;
  return parameters;
}

// All ranks live, so that the model must be that of a run in which nothing failed, whatever ended on whichever rank.
TEST_P(OuterFailures, rounds_that_are_aborted_at_any_moment_count_once_on_every_rank) {
  const OuterOptions options{.every = 2, .compression = minmax({.bits = 3, .rounding = Rounding::stochastic})};
  Values undisturbed;
  expect_success(3, [&](Communicator& comm) {
    Values own(kCount, 1.0F), statistics(kStatistics);
    OuterLoop outer(comm, with_statistics(own, statistics), options);
    for (int step = 1; step <= 12; ++step) {
      train(own, comm.rank(), step);
      outer.step();
    }
    if (comm.rank() == 0) undisturbed = own;
  });
  for (int trial = 0; trial < 24; ++trial) {
    expect_success(3, [&](Communicator& comm) {
      Values own(kCount, 1.0F);
      Values statistics(kStatistics);
      OuterLoop outer(comm, with_statistics(own, statistics), options);
      std::thread breaker;
      for (int step = 1; step <= 12; ++step) {
        train(own, comm.rank(), step);
        if (step == 6 && comm.rank() == trial % 3) {
          breaker = std::thread([group = outer.group(), trial]() mutable {
            for (int i = 0; i < 400 * trial; ++i) std::this_thread::yield();
            group.abort("a test");
          });
        }
        outer.step();
        // The others can't end the next round before: a rank that had ended all of them would leave.
        if (step == 8 && breaker.joinable()) breaker.join();
      }
      EXPECT_EQ(outer.group().size(), 3);
      EXPECT_EQ(outer.rounds(), 6u);
      ASSERT_EQ(own, undisturbed) << "trial " << trial;
    });
  }
}

// The third rank is lost before the loop has a group of its own among the three, or while the ranks compare in it how
// far they are.
TEST_P(OuterFailures, regroup_goes_on_with_those_that_live) {
  for (const bool is_in_dup : {true, false}) {
    expect_success(3, [=](Communicator& comm) {
      Communicator next = comm.dup();
      Values own(kCount, 1.0F);
      {
        OuterLoop outer(comm, {OuterParameter::of("p", own)},
                        {.every = 4, .delay = 2, .compression = block_int({.bits = 4})});
        for (int step = 1; step <= 5; ++step) {  // a round is in flight
          train(own, comm.rank(), step);
          outer.step();
        }
        if (comm.rank() < 2) {
          outer.regroup(next);
          EXPECT_EQ(outer.group().size(), 2);
          for (int step = 6; step <= 12; ++step) {
            train(own, comm.rank(), step);
            outer.step();
          }
          outer.finish();
          Communicator rest = outer.group();
          Values first = own;
          rest.broadcast(first);
          EXPECT_EQ(first, own);
          return;
        }
        if (!is_in_dup) next.dup();
        next.close();
        comm.close();
        Communicator(outer.group()).close();
      }
    });
  }
}

TEST_P(OuterFailures, a_loss_in_a_loop_with_a_dup_leaves_the_group_and_other_loops_as_they_were) {
  expect_success(2, [](Communicator& comm) {
    Values own(kCount, 1.0F), other = own;
    OuterLoop outer(comm.dup(), {OuterParameter::of("p", own)}, {.every = 1});
    OuterLoop second(comm.dup(), {OuterParameter::of("q", other)}, {.every = 1});
    for (OuterLoop* loop : {&outer, &second}) {
      comm.barrier();
      if (comm.rank() == 0) Communicator(loop->group()).abort("a test");
      loop->step();
      EXPECT_EQ(loop->rounds(), 1u);
      EXPECT_FALSE(loop->is_lost());
    }
    comm.barrier();
  });
}

TEST_P(OuterFailures, a_loss_goes_on_in_the_group_that_the_program_makes) {
  expect_success(2, [](Communicator& comm) {
    std::vector<Communicator> next{comm.dup(), comm.dup()};
    std::vector<ErrorKind> losses;
    Values own(kCount, 1.0F);
    OuterLoop outer(comm, {OuterParameter::of("p", own)}, {.every = 2, .replace_group = [&](const Error& loss) {
                                                             losses.push_back(loss.kind());
                                                             Communicator group = next[losses.size() - 1];
                                                             if (losses.size() == 1 && comm.rank() == 0)
                                                               group.abort("a test, again");
                                                             return group;
                                                           }});
    outer.step();
    comm.barrier();  // all have made it
    if (comm.rank() == 0) Communicator(outer.group()).abort("a test");
    outer.step();
    EXPECT_EQ(losses, std::vector<ErrorKind>(2, ErrorKind::aborted));
    EXPECT_FALSE(outer.is_lost());
    EXPECT_EQ(outer.rounds(), 1u);
    comm.barrier();  // which shrink() would have ended
  });
}

TEST_P(OuterFailures, what_the_program_throws_instead_of_a_group_reaches_its_caller) {
  expect_success(2, [](Communicator& comm) {
    Communicator next = comm.dup();
    Values own(kCount, 1.0F);
    OuterLoop outer(
        comm, {OuterParameter::of("p", own)},
        {.every = 1, .replace_group = [](const Error&) -> Communicator { throw std::runtime_error("no"); }});
    comm.barrier();  // all have made it
    if (comm.rank() == 0) Communicator(outer.group()).abort("a test");
    EXPECT_THROW(outer.step(), std::runtime_error);
    EXPECT_TRUE(outer.is_lost());
    outer.regroup(next);
    EXPECT_EQ(outer.rounds(), 1u);
  });
}

TEST_P(OuterFailures, without_going_on_a_loss_is_thrown_and_told_from_wrong_calls) {
  expect_success(2, [](Communicator& comm) {
    Communicator next = comm.dup();
    Values own(kCount, 1.0F);
    OuterLoop outer(comm, {OuterParameter::of("p", own)}, {.every = 2, .go_on = false});
    outer.step();
    EXPECT_FALSE(outer.is_lost());
    comm.barrier();  // all have made it
    if (comm.rank() == 0) Communicator(outer.group()).abort("a test");
    EXPECT_EQ(error_of([&] { outer.step(); }).kind, ErrorKind::aborted);
    EXPECT_TRUE(outer.is_lost());
    outer.regroup(next);
    EXPECT_FALSE(outer.is_lost());
    EXPECT_EQ(outer.rounds(), 1u);
  });
}

// The first or the second of two rounds ends on rank 0 and fails on rank 1. After the second, rank 0 has left finish().
TEST_P(OuterFailures, a_round_of_finish_that_ends_on_some_ranks_alone_counts_on_the_others) {
  for (const int broken : {1, 2}) {
    std::latch ended(1);
    expect_success(2, [&](Communicator& comm) {
      const auto optimizer = std::make_shared<WatchedOptimizer>();
      TrainedModel own(comm.rank());
      OuterLoop outer(comm.dup(), own.parameters(), {.every = 4, .fragments = 2, .optimizer = optimizer});
      optimizer->before = [&, steps = 0]() mutable {
        if (++steps != broken) return;
        if (comm.rank() == 0) return ended.count_down();
        ended.wait();
        Communicator(outer.group()).abort("a test");
        throw Error({.kind = ErrorKind::aborted, .message = "a test"});
      };
      for (int step = 1; step <= 2; ++step) {
        own.train(comm.rank(), step);
        outer.step();
        outer.finish();
        EXPECT_EQ(outer.rounds(), 2u * static_cast<unsigned>(step));
      }
      expect_same_bits(comm, outer);
    });
  }
}

// The optimizer's momentum would carry the model on.
TEST_P(OuterFailures, finish_changes_nothing_where_nothing_was_trained_since_the_last_round) {
  for (const bool by_weight : {false, true}) {
    expect_success(2, [=](Communicator& comm) {
      Values own(kCount, 1.0F), second(100, 1.0F);
      OuterLoop outer(comm, {OuterParameter::of("a.0", own), OuterParameter::of("a.1", second)},
                      {.every = 4, .fragments = 2, .compression = block_int({.bits = 4}), .is_weighted = by_weight});
      for (int step = 1; step <= 8; ++step) {
        train(own, comm.rank(), step);
        train(second, comm.rank(), step);
        outer.step(32);
      }
      const Values before(outer.global(1).begin(), outer.global(1).end());
      const Values trained_since(outer.global(0).begin(), outer.global(0).end());
      outer.finish();
      EXPECT_TRUE(std::ranges::equal(before, outer.global(1)));
      EXPECT_FALSE(std::ranges::equal(trained_since, outer.global(0)));
      EXPECT_EQ(second, before);
      outer.finish();
      EXPECT_TRUE(std::ranges::equal(before, outer.global(1))) << "again";
    });
  }
}

}  // namespace
}  // namespace qccl::testing
