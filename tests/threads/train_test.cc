// qccl::train: averages, buckets, settings that must agree between ranks, and ranks with different numbers of batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

using train::DataParallel;
using train::DataParallelOptions;
using train::Join;
using train::Parameter;

class Train : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Train, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

const std::vector<std::size_t> kSizes = {20'000, 100, 1, 33'333, 7, 40'000};

// Some parameters; the gradient of a step is a function of rank and step.
struct Model {
  std::vector<std::vector<float>> values, gradients;

  explicit Model(int rank, const std::vector<std::size_t>& sizes = kSizes) {
    for (const std::size_t size : sizes) {
      values.emplace_back(size, static_cast<float>(rank));
      gradients.emplace_back(size);
    }
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < values.size(); ++i) {
      list.push_back({"p" + std::to_string(i), values[i], gradients[i]});
    }
    return list;
  }

  void backward(int rank, int step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::mt19937 random(static_cast<unsigned>(1000 * step + 10 * static_cast<int>(i) + rank));
      std::normal_distribution<float> normal;
      for (float& x : gradients[i]) x = normal(random);
    }
  }

  void descend() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t j = 0; j < values[i].size(); ++j) values[i][j] -= 0.1F * gradients[i][j];
    }
  }
};

std::vector<double> average(std::size_t parameter, int step, const std::vector<int>& ranks, double divisor) {
  std::vector<double> sum(kSizes[parameter]);
  for (const int rank : ranks) {
    Model model(rank);
    model.backward(rank, step);
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += model.gradients[parameter][j] / divisor;
  }
  return sum;
}

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double error) {
  for (std::size_t j = 0; j < want.size(); ++j) ASSERT_NEAR(got[j], want[j], error) << j;
}

void expect_alike(Communicator& comm, const std::vector<std::vector<float>>& data) {
  for (const auto& own : data) {
    std::vector<float> first = own;
    comm.broadcast(first);
    EXPECT_EQ(first, own);
  }
}

TEST_P(Train, begins_with_rank_0_s_values_and_averages_gradients) {
  for (const int world : {1, 2, 3}) {
    for (const std::size_t bucket : {std::size_t{1}, std::size_t{100'000}, std::size_t{25} << 20}) {
      expect_success(world, [&](Communicator& comm) {
        Model own(comm.rank());
        DataParallel model(comm, own.parameters(), {.first_bucket_bytes = bucket, .bucket_bytes = bucket});
        EXPECT_EQ(own.values[0][0], 0.0F);
        EXPECT_EQ(model.buckets(), bucket == 1 ? kSizes.size() : bucket == 100'000 ? 3u : 1u);
        for (int step = 0; step < 3; ++step) {
          own.backward(comm.rank(), step);
          for (std::size_t i = kSizes.size(); i-- > 0;) model.ready(i);
          model.finish();
          for (std::size_t i = 0; i < kSizes.size(); ++i) {
            expect_near(own.gradients[i], average(i, step, all_ranks(world), world), 1e-5);
          }
          expect_alike(comm, own.gradients);
        }
        EXPECT_EQ(model.step(), 3u);
      });
    }
  }
}

TEST_P(Train, parameters_may_be_ready_in_any_order_and_not_the_same_on_all_ranks) {
  expect_success(3, [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
    std::vector<std::size_t> order(kSizes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (int step = 0; step < 5; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      own.backward(comm.rank(), step);
      for (const std::size_t i : order) model.ready(i);
      model.finish();
      expect_near(own.gradients[3], average(3, step, all_ranks(3), 3), 1e-5);
    }
  });
}

// A sum that has ended before the last gradient is ready did not wait for the end of the backward pass.
TEST_P(Train, buckets_are_summed_while_the_backward_pass_goes_on) {
  expect_success(2, [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
    own.backward(comm.rank(), 0);
    comm.log().configure({.enabled = true});
    model.ready(5);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (comm.log().read().records.empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "nothing is sent before finish()";
      std::this_thread::yield();
    }
    EXPECT_EQ(comm.log().read().records.front().bytes, kSizes[5] * sizeof(float));
    for (std::size_t i = 5; i-- > 0;) model.ready(i);
    model.finish();
    expect_near(own.gradients[5], average(5, 0, all_ranks(2), 2), 1e-5);
  });
}

TEST_P(Train, compresses_what_the_policy_says_and_owes_the_rest) {
  expect_success(2, [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters(), {.policy = Policy::parse("name=p3 minmax:bits=2")});
    std::vector<double> total(kSizes[3]), wanted(kSizes[3]);
    for (int step = 0; step < 4; ++step) {
      own.backward(comm.rank(), step);
      for (std::size_t i = kSizes.size(); i-- > 0;) model.ready(i);
      model.finish();
      expect_near(own.gradients[0], average(0, step, all_ranks(2), 2), 1e-5);
      expect_alike(comm, own.gradients);
      const auto exact = average(3, step, all_ranks(2), 2);
      for (std::size_t j = 0; j < total.size(); ++j) {
        total[j] += own.gradients[3][j];
        wanted[j] += exact[j];
      }
    }
    EXPECT_TRUE(model.feedback(0).is_none());
    const auto residual = model.feedback(3).residual();
    std::vector<float> owed(residual.begin(), residual.end());
    comm.all_reduce(owed);
    for (std::size_t j = 0; j < total.size(); ++j) ASSERT_NEAR(total[j] + owed[j] / 2, wanted[j], 1e-4) << j;
  });
}

TEST_P(Train, ranks_with_different_models_are_told_which_parameter_differs) {
  expect_success(3, [](Communicator& comm) {
    const bool odd_one = comm.rank() == 2;
    Model own(comm.rank(), {10, 20, odd_one ? std::size_t{31} : std::size_t{30}});
    EXPECT_NE(error_of([&] { DataParallel(comm, own.parameters()); }).message.find("parameter 2, here p2 of 3"),
              std::string::npos);
    Model same(comm.rank(), {10, 20});
    auto renamed = same.parameters();
    if (odd_one) renamed[1].name = "other";
    EXPECT_NE(error_of([&] { DataParallel(comm, renamed); }).message.find("on rank 2 than on rank 0"),
              std::string::npos);
    auto fewer = same.parameters();
    if (odd_one) fewer.pop_back();
    EXPECT_NE(error_of([&] { DataParallel(comm, fewer); }).message.find("rank 2 has 1 parameters, rank 0 has 2"),
              std::string::npos);
    auto wrong = same.parameters();
    if (odd_one) wrong[0].gradient = wrong[0].gradient.first(3);
    EXPECT_NE(
        error_of([&] { DataParallel(comm, wrong); }).message.find(odd_one ? "10 values and 3 gradients" : "rank 2 has"),
        std::string::npos);
    comm.barrier();  // the group is still usable
  });
}

TEST_P(Train, wrong_use_is_named) {
  expect_success(1, [](Communicator& comm) {
    Model own(0);
    DataParallel model(comm, own.parameters());
    model.ready(5);
    EXPECT_NE(error_of([&] { model.ready(5); }).message.find("p5 was ready already"), std::string::npos);
    EXPECT_NE(error_of([&] { model.ready(6); }).message.find("no parameter 6 of 6"), std::string::npos);
    EXPECT_NE(error_of([&] { model.finish(); }).message.find("p0 was not ready"), std::string::npos);
  });
}

TEST_P(Train, unused_parameters_count_as_zeros_or_stay_as_they_are) {
  expect_success(2, [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters(), {.unused_parameters = true});
    own.backward(comm.rank(), 0);
    const std::vector<float> untouched = own.gradients[1];
    for (std::size_t i = kSizes.size(); i-- > 0;) {
      if (i == 1 || (i == 3 && comm.rank() == 1)) continue;
      model.ready(i);
    }
    model.finish();
    expect_near(own.gradients[0], average(0, 0, {0, 1}, 2), 1e-5);
    EXPECT_EQ(own.gradients[1], untouched);
    expect_near(own.gradients[3], average(3, 0, {0}, 2), 1e-5);
  });
}

TEST_P(Train, an_accumulation_sends_nothing) {
  expect_success(2, [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters());
    own.backward(comm.rank(), 0);
    const auto before = own.gradients;
    const std::uint64_t sent = comm.traffic().payload_bytes_sent;
    {
      const DataParallel::Accumulation accumulation(model);
      model.ready(3);
      model.finish();
    }
    EXPECT_EQ(own.gradients, before);
    EXPECT_EQ(comm.traffic().payload_bytes_sent, sent);
    EXPECT_EQ(model.step(), 0u);
    comm.barrier();
  });
}

// ---- Join

std::vector<std::vector<float>> train_uneven(Communicator& comm, const std::vector<int>& batches,
                                             const train::JoinOptions& options,
                                             const DataParallelOptions& model_options) {
  Model own(comm.rank());
  DataParallel model(comm, own.parameters(), model_options);
  Join join(model, options);
  for (int step = 0; step < batches[static_cast<std::size_t>(comm.rank())]; ++step) {
    join.next();
    own.backward(comm.rank(), step);
    for (std::size_t i = kSizes.size(); i-- > 0;) model.ready(i);
    model.finish();
    own.descend();
  }
  join.finish();
  EXPECT_EQ(model.step(), static_cast<std::uint64_t>(*std::max_element(batches.begin(), batches.end())));
  return own.values;
}

// The values that one process with all ranks' batches would reach.
std::vector<float> expected_values(std::size_t parameter, const std::vector<int>& batches, bool by_initial_world) {
  std::vector<float> values(kSizes[parameter]);
  for (int step = 0; step < *std::max_element(batches.begin(), batches.end()); ++step) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < batches.size(); ++rank) {
      if (step < batches[rank]) ranks.push_back(static_cast<int>(rank));
    }
    const auto divisor = static_cast<double>(by_initial_world ? batches.size() : ranks.size());
    const auto mean = average(parameter, step, ranks, divisor);
    for (std::size_t j = 0; j < values.size(); ++j) values[j] -= static_cast<float>(0.1 * mean[j]);
  }
  return values;
}

TEST_P(Train, ranks_with_1_7_30_and_no_batches_end_with_the_model_of_one_process) {
  const std::vector<int> batches{1, 7, 30, 0};
  for (const bool by_initial_world : {true, false}) {
    for (const bool unused : {false, true}) {
      expect_success(4, [&](Communicator& comm) {
        const auto values = train_uneven(comm, batches, {.divide_by_initial_world = by_initial_world},
                                         {.first_bucket_bytes = 1000, .unused_parameters = unused});
        expect_alike(comm, values);
        const auto want = expected_values(4, batches, by_initial_world);
        for (std::size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(values[4][j], want[j], 1e-4);
      });
    }
  }
}

TEST_P(Train, joined_ranks_pay_what_they_owe) {
  const std::vector<int> batches{3, 9};
  expect_success(2, [&](Communicator& comm) {
    const auto values = train_uneven(comm, batches, {}, {.policy = Policy::parse("minmax:bits=4")});
    expect_alike(comm, values);
    const auto want = expected_values(0, batches, true);
    for (std::size_t j = 0; j < want.size(); ++j) ASSERT_NEAR(values[0][j], want[j], 0.1) << j;
  });
}

TEST_P(Train, an_early_end_is_thrown_on_every_rank_where_that_is_asked_for) {
  expect_success(3, [](Communicator& comm) {
    const std::string error = error_of([&] {
                                train_uneven(comm, {4, 2, 4}, {.throw_on_early_end = true}, {});
                              }).message;
    EXPECT_NE(error.find("1 of the ranks have no batch left"), std::string::npos) << error;
    comm.barrier();
  });
}

TEST_P(Train, another_collective_while_a_rank_has_joined_is_an_error_on_all) {
  const auto failures = run_threads(2, options(), [](Communicator& comm) {
    Model own(comm.rank());
    DataParallel model(comm, own.parameters());
    Join join(model);
    if (comm.rank() == 0) {
      join.next();
      std::vector<double> foreign(1000);
      comm.all_reduce(foreign);
    }
    join.finish();
  });
  for (const std::string& failure : failures) EXPECT_NE(failure.find("all_reduce"), std::string::npos) << failure;
}

}  // namespace
}  // namespace qccl::testing
