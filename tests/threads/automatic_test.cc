// Automatic compression: all ranks always use the same compression, whatever they measure with their own clocks.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Automatic : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Automatic, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

constexpr std::size_t kCount = 20'000;

std::vector<float> gaussian(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> data(kCount);
  for (float& x : data) x = normal(random);
  return data;
}

std::vector<float> exact_sum(int world) {
  std::vector<float> sum(kCount);
  for (int rank = 0; rank < world; ++rank) {
    const auto data = gaussian(rank);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += data[i];
  }
  return sum;
}

// Expects the same bits on all ranks, and the precision of 8 bits: values up to 5 of 3 ranks, encoded twice.
void expect_sum(Communicator& comm, const std::vector<float>& result, const std::vector<float>& exact) {
  std::vector<float> of_rank_0 = result;
  comm.broadcast(of_rank_0);
  EXPECT_EQ(of_rank_0, result);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(result[i], exact[i], 0.25) << i;
}

// Makes more calls than a trial and its comparison take, in all forms of the call.
TEST_P(Automatic, calls_agree_on_every_rank_through_a_trial_and_after_it) {
  for (const int world : {1, 2, 3}) {
    const auto exact = exact_sum(world);
    expect_success(world, [&](Communicator& comm) {
      comm.set_compression(automatic());
      const auto own = gaussian(comm.rank());
      for (int call = 0; call < 60; ++call) {
        auto data = own;
        comm.all_reduce(data);
        if (call % 10 == 0) expect_sum(comm, data, exact);
        std::vector<std::vector<float>> several(3, own);
        std::vector<Work> works;
        for (auto& each : several) works.push_back(comm.all_reduce_async(each));
        for (const Work& work : works) work.wait();
        if (call % 10 == 0) expect_sum(comm, several[2], exact);
      }
      comm.group_start();
      std::vector<float> first = own, second = own;
      comm.all_reduce(first);
      comm.all_reduce(second);
      comm.group_end().wait();
      expect_sum(comm, first, exact);
      EXPECT_EQ(first, second);
    });
  }
}

TEST_P(Automatic, says_what_calls_are_sent_as_and_that_is_one_of_its_candidates) {
  expect_success(2, [](Communicator& comm) {
    const CallOptions options{.compression = automatic(4)};
    EXPECT_EQ(comm.effective_compression(kCount, DataType::float32, options), none());
    std::vector<float> data(kCount, 1.0F);
    for (int call = 0; call < 100; ++call) {
      comm.all_reduce(data, options);
      const Compression now = comm.effective_compression(kCount, DataType::float32, options);
      EXPECT_TRUE(now == none() || now == minmax({.bits = 4}) || now == block_int({.bits = 4})) << now.to_string();
    }
    // Calls that can't be compressed stay uncompressed.
    EXPECT_EQ(comm.effective_compression(kCount, DataType::int32, {.op = ReduceOp::max}), none());
  });
}

TEST_P(Automatic, a_dup_tries_candidates_like_its_parent) {
  expect_success(2, [](Communicator& comm) {
    comm.set_compression(automatic());
    Communicator twin = comm.dup();
    bool has_compressed = false;
    std::vector<float> data(kCount, 1.0F);
    for (int call = 0; call < 10; ++call) {
      twin.all_reduce(data);
      has_compressed |= !twin.effective_compression(kCount, DataType::float32).is_none();
    }
    EXPECT_TRUE(has_compressed);
  });
}

TEST_P(Automatic, all_to_all_with_counts_of_its_own_is_sent_as_it_is) {
  expect_success(2, [](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::vector<std::uint64_t> sends =
        rank == 0 ? std::vector<std::uint64_t>{5, 70'000} : std::vector<std::uint64_t>{300, 9};
    const std::vector<std::uint64_t> receives =
        rank == 0 ? std::vector<std::uint64_t>{5, 300} : std::vector<std::uint64_t>{70'000, 9};
    for (int call = 0; call < 40; ++call) {
      const std::vector<float> input(sends[0] + sends[1], 0.1F);
      std::vector<float> output(receives[0] + receives[1]);
      comm.all_to_all_v(input.data(), sends, output.data(), receives, DataType::float32, {.compression = automatic()});
      EXPECT_EQ(output.back(), 0.1F);
    }
  });
}

}  // namespace
}  // namespace qccl::testing
