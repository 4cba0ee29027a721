// A rank that posts collectives far ahead of a late rank is held back: neither rank's memory grows with the number of
// posted calls, and the job goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "engine/state/group.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

constexpr int kCalls = 6000;
constexpr std::size_t kCount = 3;

class FarAhead : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, FarAhead, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

Work post_sum(Communicator& comm, std::vector<std::int64_t>& data) {
  return comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::int64, {.algorithm = Algorithm::sra});
}

// Rank 0 is always as far ahead as the limit allows.
TEST_P(FarAhead, a_rank_waits_for_a_late_one_and_the_job_goes_on) {
  const int limit = static_cast<int>(engine::max_in_flight(2));
  std::atomic<int> posted{0};
  std::atomic<bool> too_far{false};
  expect_success(2, [&](Communicator& comm) {
    std::deque<std::pair<std::vector<std::int64_t>, Work>> calls;
    const auto finish_first = [&] {
      calls.front().second.wait();
      ASSERT_EQ(calls.front().first, std::vector<std::int64_t>(kCount, 3));
      calls.pop_front();
    };
    for (int i = 0; i < kCalls; ++i) {
      while (comm.rank() == 1 && posted.load() < std::min(kCalls, i + limit)) std::this_thread::yield();
      if (comm.rank() == 1) too_far = too_far || posted.load() > i + limit;
      auto& call = calls.emplace_back(std::vector<std::int64_t>(kCount, comm.rank() + 1), Work{});
      call.second = post_sum(comm, call.first);
      if (comm.rank() == 1) finish_first();
      if (comm.rank() == 0) ++posted;
    }
    while (!calls.empty()) finish_first();
  });
  EXPECT_FALSE(too_far) << "more than " << limit << " calls ahead";
}

TEST_P(FarAhead, a_group_of_more_collectives_than_may_be_in_flight_ends_whole) {
  expect_success(2, [&](Communicator& comm) {
    const std::size_t calls = engine::max_in_flight(2) + 100;
    std::vector<std::int64_t> sums(calls), data(kCount, comm.rank());
    comm.group_start();
    for (std::size_t i = 0; i < calls; ++i) {
      sums[i] = static_cast<std::int64_t>(i);
      comm.all_reduce(&sums[i], &sums[i], 1, DataType::int64);
    }
    if (comm.rank() == 0) comm.send(data.data(), data.size(), DataType::int64, 1);
    if (comm.rank() == 1) comm.recv(data.data(), data.size(), DataType::int64, 0);
    comm.group_end().wait();
    for (std::size_t i = 0; i < calls; ++i) ASSERT_EQ(sums[i], static_cast<std::int64_t>(2 * i));
    EXPECT_EQ(data, std::vector<std::int64_t>(kCount, 0));
  });
}

}  // namespace
}  // namespace qccl::testing
