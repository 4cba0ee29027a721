// qccl::train::OuterLoop: averages, the same bits, conservation of error feedback, overlapping, saved states, ranks
// that are lost and that join.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "extras/train/outer/fragment.h"
#include "support/error_of.h"
#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class Outer : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Outer, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

std::vector<std::vector<float>> values_after(Communicator& comm, const OuterOptions& options, int steps,
                                             bool finishes = true) {
  TrainedModel own(comm.rank());
  OuterLoop outer(comm, own.parameters(), options);
  for (int step = 0; step < steps; ++step) {
    own.train(comm.rank(), step);
    outer.step();
  }
  if (finishes) outer.finish();
  expect_same_bits(comm, outer);
  return own.values;
}

TEST_P(Outer, every_step_with_a_rate_of_1_and_no_momentum_is_parameter_averaging_to_the_bit) {
  expect_success(3, [](Communicator& comm) {
    TrainedModel own(comm.rank()), reference(0);
    OuterLoop outer(comm, own.parameters(), {.every = 1, .optimizer = averaging()});
    EXPECT_EQ(own.values, reference.values);  // rank 0's
    for (int step = 0; step < 20; ++step) {
      own.train(comm.rank(), step);
      outer.step();
      reference.train(comm.rank(), step);
      std::vector<float> average;  // of all layers in one call: the order of additions depends on its size
      for (const auto& layer : reference.values) average.insert(average.end(), layer.begin(), layer.end());
      comm.all_reduce(average, {.op = ReduceOp::avg});
      auto next = average.begin();
      for (auto& layer : reference.values) {
        std::copy_n(next, layer.size(), layer.begin());
        next += static_cast<std::ptrdiff_t>(layer.size());
      }
      EXPECT_TRUE(own.values == reference.values) << step;
    }
  });
}

TEST_P(Outer, global_model_has_the_same_bits_after_every_round) {
  expect_success(3, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(),
                    {.every = 8, .fragments = 3, .delay = 2, .blend = 0.5, .compression = block_int({.bits = 4})});
    for (int step = 0; step < 60; ++step) {
      own.train(comm.rank(), step);
      outer.step();
      expect_same_bits(comm, outer);
    }
    EXPECT_EQ(outer.rounds(), 22u);  // the last began at step 58
    outer.finish();
    const std::vector<float> end = own.values[0];
    comm.broadcast(own.values[0]);
    EXPECT_EQ(own.values[0], end);
  });
}

// DiLoCo's step, written out for one value.
TEST_P(Outer, default_optimizer_is_sgd_with_nesterov_momentum) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> own(1, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)}, {.every = 1});
    double global = 0, momentum = 0;
    for (int step = 0; step < 10; ++step) {
      own[0] += comm.rank() == 0 ? 1.0F : 3.0F;
      outer.step();
      momentum = 0.9 * momentum - 2;
      global -= 0.7 * (0.9 * momentum - 2);
      EXPECT_NEAR(own[0], global, 1e-4 * std::fabs(global));
    }
  });
}

// A rate of 1 without momentum: the global model moves by what has arrived.
TEST_P(Outer, what_error_feedback_holds_back_and_what_was_sent_is_what_was_given) {
  struct Case {
    const char* compression;
    bool is_bfloat16 = false;
  };
  for (const Case& each :
       {Case{"int:bits=2"}, Case{"int:bits=2", true}, Case{"h4:bits=2"}, Case{"topk:density=0.05,values=int2"}}) {
    expect_success(2, [&](Communicator& comm) {
      std::vector<float> own(3000, 0.0F);
      OuterLoop outer(comm, {OuterParameter::of("x", own)},
                      {.every = 1,
                       .compression = Compression::parse(each.compression),
                       .bfloat16_residual = each.is_bfloat16,
                       .optimizer = averaging()});
      std::vector<double> given(own.size());
      for (int step = 0; step < 1000; ++step) {
        std::mt19937 random(static_cast<unsigned>(2 * step + comm.rank()));
        for (std::size_t i = 0; i < own.size(); ++i) {
          const float before = own[i];
          own[i] += static_cast<float>(random() % 1000) / 1000 - 0.5F;
          given[i] += static_cast<double>(own[i]) - before;
        }
        outer.step();
      }
      comm.all_reduce(given);
      std::vector<float> owed = outer.residual(0);
      comm.all_reduce(owed);
      double worst = 0;
      for (std::size_t i = 0; i < own.size(); ++i) {
        worst = std::max(worst, std::fabs(2 * static_cast<double>(own[i]) - owed[i] - given[i]));
      }
      EXPECT_LT(worst, each.is_bfloat16 ? 2.0 : 2e-2) << each.compression;
    });
  }
}

// The advice of docs/outer.md: of the codecs with 2 bits, the one that holds back less than is given.
TEST_P(Outer, two_bits_of_h4_hold_back_half_a_delta_where_those_of_int_hold_back_more_than_one) {
  const auto held_back = [this](const Compression& compression) {
    double ratio = 0;
    expect_success(4, [&](Communicator& comm) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm, own.parameters(), {.every = 1, .compression = compression, .optimizer = averaging()});
      for (int step = 0; step < 30; ++step) {
        own.train(comm.rank(), step);
        outer.step();
      }
      const RoundRecord& last = outer.history().back();
      if (comm.rank() == 0) ratio = last.residual_norm / last.delta_norm;
    });
    return ratio;
  };
  EXPECT_LT(held_back(block_int({.bits = 4})), 0.25);
  EXPECT_LT(held_back(h4({.bits = 2})), 0.7);
  EXPECT_GT(held_back(block_int({.bits = 2})), 1.5);
}

TEST_P(Outer, asynchronous_rounds_with_a_delay_take_their_delta_when_they_begin) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> own(1, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)},
                    {.every = 4, .delay = 2, .blend = 0.25, .optimizer = averaging()});
    for (int step = 0; step < 6; ++step) {
      own[0] += comm.rank() == 0 ? 1.0F : 3.0F;
      outer.step();
    }
    EXPECT_EQ(outer.global(0)[0], 8.0F);  // the average of 4 and 12, at step 4
    EXPECT_EQ(own[0], 0.25F * (comm.rank() == 0 ? 6.0F : 18.0F) + 0.75F * 8.0F);
  });
}

TEST_P(Outer, deltas_count_by_samples_where_that_is_asked_for) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> own(1, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)}, {.every = 2, .is_weighted = true, .optimizer = averaging()});
    for (int step = 0; step < 2; ++step) {
      own[0] += comm.rank() == 0 ? 1.0F : 3.0F;
      outer.step(comm.rank() == 0 ? 30 : 10);
    }
    EXPECT_FLOAT_EQ(own[0], (2.0F * 30 + 6.0F * 10) / 40);
  });
}

// finish() ends the only round: the time does not pass.
TEST_P(Outer, deltas_count_by_samples_where_ranks_synchronise_by_time) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> own(1, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)},
                    {.every_time = std::chrono::hours(1), .optimizer = averaging()});
    const int steps = comm.rank() == 0 ? 1 : 3;
    for (int step = 0; step < steps; ++step) {
      own[0] += 1;
      outer.step();
    }
    outer.finish();
    EXPECT_FLOAT_EQ(own[0], (1.0F * 1 + 3.0F * 3) / 4);
  });
}

TEST_P(Outer, samples_without_a_meaning_are_refused) {
  expect_success(1, [](Communicator& comm) {
    std::vector<float> own(1, 0.0F);
    OuterLoop outer(comm, {OuterParameter::of("x", own)}, {.every = 2});
    for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
      const ErrorInfo error = error_of([&] { outer.step(wrong); });
      EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
      EXPECT_NE(error.message.find("samples: give a number from 0"), std::string::npos) << error.message;
    }
    EXPECT_EQ(outer.steps(), 0U);
  });
}

TEST_P(Outer, ranks_that_synchronise_by_time_make_different_numbers_of_steps) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every_time = Milliseconds(20), .fragments = 2, .is_weighted = true});
    const int steps = comm.rank() == 0 ? 200 : 777;
    for (int step = 0; step < steps; ++step) {
      own.train(comm.rank(), step);
      outer.step(8);
    }
    outer.finish();
    EXPECT_EQ(outer.steps(), static_cast<std::uint64_t>(steps));
    expect_same_bits(comm, outer);
  });
}

TEST_P(Outer, statistics_are_averaged_and_not_stepped) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> weight(100, 1.0F), mean(10, 0.0F);
    std::vector<OuterParameter> parameters{OuterParameter::of("norm.mean", mean),
                                           OuterParameter::of("a.weight", weight)};
    parameters[0].is_averaged = true;
    OuterLoop outer(comm, parameters, {.every = 1, .compression = block_int({.bits = 4})});
    std::ranges::fill(mean, comm.rank() == 0 ? 1.0F : 4.0F);
    outer.step();
    EXPECT_EQ(mean, std::vector<float>(10, 2.5F));
    EXPECT_EQ(weight, std::vector<float>(100, 1.0F));
  });
}

TEST_P(Outer, state_that_was_saved_and_loaded_gives_the_same_bits_even_in_the_middle_of_a_round) {
  const OuterOptions options{
      .every = 6, .fragments = 2, .delay = 2, .blend = 0.5, .compression = block_int({.bits = 2}), .error_decay = 0.9};
  for (const int end_of_first : {7, 8, 9, 11}) {
    expect_success(2, [&](Communicator& comm) {
      const auto expected = values_after(comm, options, 30);
      std::vector<std::byte> saved;
      TrainedModel own(comm.rank());
      {
        OuterLoop outer(comm, own.parameters(), options);
        for (int step = 0; step < end_of_first; ++step) {
          own.train(comm.rank(), step);
          outer.step();
        }
        saved = outer.save();
      }
      TrainedModel later(comm.rank());
      OuterLoop outer(comm, later.parameters(), options);
      later.values = own.values;
      outer.load(saved);
      for (int step = end_of_first; step < 30; ++step) {
        later.train(comm.rank(), step);
        outer.step();
      }
      outer.finish();
      EXPECT_EQ(later.values, expected);
      saved[100] ^= std::byte{1};
      EXPECT_EQ(error_of([&] { outer.load(saved); }).kind, ErrorKind::corrupt_data);
    });
  }
}

// One value: a round that began with 3 and 9 is in flight.
TEST_P(Outer, additional_ranks_that_load_the_state_of_another_one_send_nothing_twice) {
  struct Case {
    Compression compression = none();
    bool is_weighted = false;
    float average;  // of the models with which the round began, 4, 12 and where it counts 0
  };
  for (const Case& each : {Case{none(), false, 16.0F / 3}, Case{block_int({.bits = 4}), false, 16.0F / 3},
                           Case{none(), true, 8}, Case{block_int({.bits = 4}), true, 8}}) {
    std::vector<std::byte> saved[2];
    const OuterOptions options{.every = 4,
                               .delay = 2,
                               .compression = each.compression,
                               .is_weighted = each.is_weighted,
                               .optimizer = averaging()};
    const auto train = [](OuterLoop& outer, Communicator& comm, std::vector<float>& own, int steps) {
      for (int step = 0; step < steps; ++step) {
        own[0] += comm.rank() == 0 ? 1.0F : 3.0F;
        outer.step();
      }
    };
    expect_success(2, [&](Communicator& comm) {
      std::vector<float> own(1, 0.0F);
      OuterLoop outer(comm, {OuterParameter::of("x", own)}, options);
      train(outer, comm, own, 5);
      saved[comm.rank()] = outer.save();
    });
    expect_success(3, [&](Communicator& comm) {
      const bool is_additional = comm.rank() == 2;
      std::vector<float> own(1, -1.0F);
      OuterLoop outer(comm, {OuterParameter::of("x", own)}, options);
      if (!is_additional) own[0] = comm.rank() == 0 ? 5.0F : 15.0F;
      outer.load(saved[is_additional ? 0 : comm.rank()], !is_additional);
      if (is_additional) EXPECT_EQ(own[0], 0.0F);
      train(outer, comm, own, 1);
      EXPECT_NEAR(outer.global(0)[0], each.average, each.compression.is_none() ? 1e-6 : 0.2);
      outer.finish();
      expect_same_bits(comm, outer);
    });
  }
}

TEST_P(Outer, fewer_ranks_go_on_from_their_saved_states) {
  const OuterOptions options{.every = 6, .fragments = 2, .delay = 2, .compression = block_int({.bits = 4})};
  for (const int cut : {7, 10}) {  // 7: a round is in flight
    std::vector<std::byte> saved[3];
    std::vector<std::vector<float>> values[3];
    expect_success(3, [&](Communicator& comm) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm, own.parameters(), options);
      for (int step = 0; step < cut; ++step) {
        own.train(comm.rank(), step);
        outer.step();
      }
      saved[comm.rank()] = outer.save();
      values[comm.rank()] = own.values;
    });
    expect_success(2, [&](Communicator& comm) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm, own.parameters(), options);
      own.values = values[comm.rank() + 1];
      outer.load(saved[comm.rank() + 1]);
      expect_same_bits(comm, outer);
      for (int step = cut; step < 20; ++step) {
        own.train(comm.rank() + 1, step);
        outer.step();
      }
      outer.finish();
      expect_same_bits(comm, outer);
      EXPECT_EQ(outer.history().back().ranks, 2);
    });
  }
}

TEST_P(Outer, ranks_that_live_end_the_round_in_which_one_is_lost) {
  for (const int lost_after : {3, 4, 5, 9}) {
    expect_success(3, [&](Communicator& comm) {
      TrainedModel own(comm.rank());
      OuterLoop outer(comm, own.parameters(),
                      {.every = 4, .fragments = 2, .delay = 1, .compression = block_int({.bits = 4})});
      for (int step = 0; step < 24; ++step) {
        if (comm.rank() == 1 && step == lost_after) return;
        own.train(comm.rank(), step);
        outer.step();
      }
      outer.finish();
      Communicator rest = outer.group();
      EXPECT_EQ(rest.size(), 2);
      EXPECT_EQ(outer.history().back().ranks, 2);
      expect_same_bits(rest, outer);
    });
  }
}

TEST_P(Outer, a_rank_that_joins_gets_the_global_model_and_the_optimizer) {
  expect_success(3, [](Communicator& comm) {
    const OuterOptions options{.every = 4, .fragments = 2, .delay = 1, .compression = block_int({.bits = 4})};
    TrainedModel own(comm.rank());
    auto members = comm.split(comm.rank() < 2 ? 0 : -1);
    std::optional<OuterLoop> outer;
    if (members) {
      outer.emplace(*members, own.parameters(), options);
      for (int step = 0; step < 6; ++step) {
        own.train(comm.rank(), step);
        outer->step();
      }
      outer->regroup(comm);
    } else {
      outer.emplace(comm, own.parameters(), options);
    }
    EXPECT_EQ(outer->steps(), 6u);
    for (int step = 6; step < 20; ++step) {
      own.train(comm.rank(), step);
      outer->step();
      expect_same_bits(comm, *outer);
    }
    outer->finish();
    expect_same_bits(comm, *outer);
  });
}

TEST_P(Outer, log_has_the_rounds_if_it_is_enabled) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    OuterLoop outer(comm, own.parameters(), {.every = 2, .fragments = 2, .compression = block_int({.bits = 4})});
    for (int step = 0; step < 12; ++step) {
      if (step == 6) comm.log().configure({.enabled = true, .capacity = 4});
      own.train(comm.rank(), step);
      outer.step();
    }
    const std::vector<RoundRecord> last(outer.history().end() - 4, outer.history().end());
    EXPECT_EQ(outer.history().size(), 12u);
    EXPECT_EQ(comm.log().read().rounds, last);
    for (const RoundRecord& round : last) {
      EXPECT_GT(round.bytes, 0u);
      EXPECT_GT(round.delta_norm, round.residual_norm);
      EXPECT_GT(round.residual_norm, 0);
      EXPECT_GT(round.seconds, round.seconds_waited);
      EXPECT_GT(round.ended_ns, 0);
    }
    comm.log().clear();
    EXPECT_TRUE(comm.log().read().rounds.empty());
  });
}

TEST_P(Outer, wrong_options_and_ranks_that_differ_are_named) {
  expect_success(2, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    const auto message = [&](const OuterOptions& options) {
      return error_of([&] { OuterLoop(comm, own.parameters(), options); }).message;
    };
    EXPECT_NE(message({.every = 8, .fragments = 5}).find("5 fragments of 4 layers"), std::string::npos);
    EXPECT_NE(message({.every = 8, .fragments = 2, .delay = 5}).find("delay of 5 steps"), std::string::npos);
    EXPECT_NE(message({.every = comm.rank() == 0 ? 8u : 9u}).find("rank 1 has other options"), std::string::npos);
  });
}

TEST(OuterLayers, are_the_names_up_to_their_first_number_or_last_dot) {
  EXPECT_EQ(train::layer_of("transformer.h.11.mlp.0.weight"), "transformer.h.11");
  EXPECT_EQ(train::layer_of("tokens.weight"), "tokens");
  EXPECT_EQ(train::layer_of("scale"), "scale");
  EXPECT_EQ(train::layer_of(""), "");
}

}  // namespace
}  // namespace qccl::testing
