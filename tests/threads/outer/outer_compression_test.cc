// Error feedback in the outer loop: its decay, its equality with calls by hand, its conservation with weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class OuterCompression : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, OuterCompression, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

// Half of the values are sent: those that move by 1. The others move by 1/4 and owe more after each round.
TEST_P(OuterCompression, residual_decays_by_the_factor_before_it_is_added) {
  for (const double decay : {0.5, 0.75}) {
    expect_success(2, [=](Communicator& comm) {
      Values own(4096, 0.0F);
      OuterLoop outer(
          comm, {OuterParameter::of("x", own)},
          {.every = 1, .compression = topk({.density = 0.5}), .error_decay = decay, .optimizer = averaging()});
      float owed = 0;
      for (int round = 1; round <= 5; ++round) {
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += i % 2 == 0 ? 1.0F : 0.25F;
        outer.step();
        owed = static_cast<float>(decay) * owed - 0.25F;
        const Values residual = outer.residual(0);
        for (std::size_t i = 0; i < own.size(); ++i) {
          ASSERT_EQ(residual[i], i % 2 == 0 ? 0.0F : owed) << "round " << round << ", element " << i;
          ASSERT_EQ(own[i], i % 2 == 0 ? static_cast<float>(round) : 0.0F);
        }
      }
    });
  }
}

TEST_P(OuterCompression, without_a_delay_is_a_loop_of_blocking_calls_with_error_feedback) {
  expect_success(3, [](Communicator& comm) {
    const OuterOptions options{.every = 1, .compression = block_int({.bits = 4}), .optimizer = plain_sgd(0.5)};
    Values own(30'000, 1.0F), model = own, global = own, delta(own.size());
    OuterLoop outer(comm, {OuterParameter::of("x", own)}, options);
    ErrorFeedback feedback(own.size());
    for (unsigned step = 0; step < 20; ++step) {
      std::mt19937 random(3 * step + static_cast<unsigned>(comm.rank()));
      std::normal_distribution<float> normal(0, 0.01F);
      for (std::size_t i = 0; i < own.size(); ++i) {
        const float change = normal(random);
        own[i] += change;
        model[i] += change;
      }
      outer.step();
      for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = global[i] - model[i];
      comm.all_reduce(delta, {.op = ReduceOp::avg, .compression = options.compression, .error_feedback = feedback});
      for (std::size_t i = 0; i < delta.size(); ++i) model[i] = global[i] -= 0.5F * delta[i];
      ASSERT_EQ(own, model) << "step " << step;
    }
  });
}

// Two ranks trained different halves of the values: none are left out of the sum, as a choice of half of it would do.
TEST_P(OuterCompression, ranks_receive_what_each_of_the_others_has_chosen) {
  expect_success(2, [](Communicator& comm) {
    Values own(3 * 4096, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)},
                    {.every = 1, .compression = topk({.density = 0.5}), .optimizer = averaging()});
    const std::size_t first = comm.rank() == 0 ? 0 : 1;
    for (std::size_t i = first; i < own.size(); i += 2) own[i] = comm.rank() == 0 ? 1.0F : 2.0F;
    outer.step();
    for (std::size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], i % 2 == 0 ? 0.5F : 1.0F) << "element " << i;
    EXPECT_EQ(outer.residual(0), Values(own.size(), 0.0F));
  });
}

// Samples times deltas are what is given; the global model moves by what has arrived, divided by all samples.
TEST_P(OuterCompression, weighted_deltas_are_conserved) {
  expect_success(2, [](Communicator& comm) {
    Values own(3000, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)},
                    {.every = 2, .compression = block_int({.bits = 4}), .is_weighted = true, .optimizer = averaging()});
    std::vector<double> given(own.size()), arrived(own.size());
    for (int round = 0; round < 200; ++round) {
      const Values before(outer.global(0).begin(), outer.global(0).end());
      std::vector<double> samples{comm.rank() == 0 ? 6.0 + round % 5 : 40.0 - round % 7};
      for (int step = 0; step < 2; ++step) {
        std::mt19937 random(static_cast<unsigned>(4 * round + 2 * step + comm.rank()));
        for (float& x : own) x += static_cast<float>(random() % 1000) / 1000 - 0.5F;
        if (step == 1) {
          for (std::size_t i = 0; i < own.size(); ++i) given[i] += samples[0] * (before[i] - double{own[i]});
        }
        outer.step(samples[0] / 2);
      }
      comm.all_reduce(samples);
      for (std::size_t i = 0; i < own.size(); ++i) arrived[i] += samples[0] * (before[i] - double{own[i]});
    }
    comm.all_reduce(given);
    Values owed = outer.residual(0);
    comm.all_reduce(owed);
    double worst = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      worst = std::max(worst, std::fabs(arrived[i] + owed[i] - given[i]));
    }
    EXPECT_LT(worst, 0.1);  // float32 of sums up to 20, by 46 samples, 200 times
  });
}

TEST_P(OuterCompression, ranks_that_synchronise_by_time_end_with_the_same_model) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(),
                    {.every_time = Milliseconds(10),
                     .fragments = 2,
                     .compression = h4({.bits = 2}),
                     .error_decay = 0.9,
                     .is_weighted = true});
    for (int step = 0; step < (comm.rank() == 0 ? 100 : 333); ++step) {
      own.train(comm.rank(), step);
      outer.step(8);
    }
    outer.finish();
    expect_same_bits(comm, outer);
    EXPECT_EQ(own.values[1], Values(outer.global(1).begin(), outer.global(1).begin() + 70));
  });
}

// A power of two, so that the codes are the same.
TEST_P(OuterCompression, norms_of_weighted_deltas_and_residuals_are_those_of_deltas) {
  expect_success(2, [](Communicator& comm) {
    std::vector<train::OuterRound> rounds[2];
    for (const bool is_weighted : {false, true}) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm, own.parameters(),
                      {.every = 2, .compression = block_int({.bits = 4}), .is_weighted = is_weighted});
      for (int step = 0; step < 6; ++step) {
        own.train(comm.rank(), step);
        outer.step(32);
      }
      rounds[is_weighted ? 1 : 0] = outer.history();
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(rounds[1][i].delta_norm, rounds[0][i].delta_norm, 1e-6 * rounds[0][i].delta_norm);
      EXPECT_NEAR(rounds[1][i].residual_norm, rounds[0][i].residual_norm, 0.01 * rounds[0][i].residual_norm);
    }
  });
}

}  // namespace
}  // namespace qccl::testing
