// Long calls in flight take turns (src/engine/turns.h): they end all the same, whatever ranks wait for first.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class LongCalls : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, LongCalls, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

constexpr std::size_t kSizes[] = {1'200'000, 3, 2'500'000, 60'000, 2'500'000, 70'001, 0, 200'000, 2'200'000, 1};

// All-reduces in flight of one group, of ones.
struct Calls {
  explicit Calls(Communicator& comm) : group(comm) {
    for (const std::size_t size : kSizes) data.emplace_back(size, 1.0F);
  }
  void post() {
    for (auto& each : data) works.push_back(group.all_reduce_async(each));
  }
  void expect_sums() const {
    const auto expected = static_cast<float>(group.size());
    for (const auto& each : data) {
      EXPECT_TRUE(std::all_of(each.begin(), each.end(), [&](float value) { return value == expected; }));
    }
  }

  Communicator group;
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
};

TEST_P(LongCalls, of_two_groups_may_be_posted_and_waited_for_in_any_order) {
  expect_success(3, [](Communicator& comm) {
    Communicator twin = comm.dup();
    Calls first(comm), second(twin);
    const bool odd = comm.rank() % 2 == 1;
    (odd ? second : first).post();
    (odd ? first : second).post();
    std::vector<Work> works = first.works;
    works.insert(works.end(), second.works.begin(), second.works.end());
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::shuffle(works.begin(), works.end(), random);
    for (const Work& work : works) work.wait();
    first.expect_sums();
    second.expect_sums();
  });
}

TEST_P(LongCalls, that_wait_keep_no_message_and_no_short_call_waiting) {
  expect_success(2, [](Communicator& comm) {
    Communicator twin = comm.dup();
    Calls calls(comm);
    std::vector<float> message(500'000, 1.0F), sum(10, 1.0F);
    if (comm.rank() == 0) {
      calls.post();
      comm.send(message, 1);
      twin.all_reduce(sum);
    } else {
      comm.recv(message, 0);
      twin.all_reduce(sum);
      calls.post();
    }
    for (const Work& work : calls.works) work.wait();
    calls.expect_sums();
  });
}

TEST_P(LongCalls, may_be_waited_for_from_the_last_to_the_first) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> large(5'000'000, 1.0F), larger(6'000'000, 1.0F), small(20'000, 1.0F);
    const Work works[] = {comm.all_reduce_async(large), comm.all_reduce_async(larger), comm.all_reduce_async(small)};
    works[2].wait();
    EXPECT_EQ(small.back(), 2.0F);
    works[1].wait();
    works[0].wait();
    EXPECT_EQ(larger.front(), 2.0F);
    EXPECT_EQ(large.front(), 2.0F);
  });
}

}  // namespace
}  // namespace qccl::testing
