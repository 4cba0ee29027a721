// Long calls in flight take turns (AdmissionControl): all of them end, whichever one a rank waits
// for first.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class LongCalls : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, LongCalls, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

constexpr std::size_t kSizes[] = {1'200'000, 3, 2'500'000, 60'000, 2'500'000, 70'001, 0, 200'000, 2'200'000, 1};

// A value that varies with element and call, small enough that every order of addition gives the same sum.
float element(std::size_t index, std::size_t call) { return static_cast<float>((index + 31 * call) % 1009); }

std::vector<float> input(std::size_t size, std::size_t call, int rank) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(rank + 1) * element(i, call);
  return values;
}

void expect_sum(const std::vector<float>& sum, std::size_t call, int world) {
  const auto factor = static_cast<float>(world * (world + 1) / 2);
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], factor * element(i, call)) << i << " of call " << call;
}

// All-reduces in flight of one group. Calls with a different `first` have different inputs.
struct Calls {
  explicit Calls(Communicator& comm, std::size_t first = 0) : group(comm), first(first) {
    for (const std::size_t size : kSizes) data.push_back(input(size, first + data.size(), comm.rank()));
  }
  void post() {
    for (auto& each : data) works.push_back(group.all_reduce_async(each));
  }
  void expect_sums() const {
    for (std::size_t i = 0; i < data.size(); ++i) expect_sum(data[i], first + i, group.size());
  }

  Communicator group;
  std::size_t first;
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
};

TEST_P(LongCalls, of_two_groups_may_be_posted_and_waited_for_in_any_order) {
  expect_success(3, [](Communicator& comm) {
    Communicator twin = comm.dup();
    Calls first(comm), second(twin, std::size(kSizes));
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
    std::vector<float> message = input(500'000, 20, 2 * comm.rank()), sum = input(10, 21, comm.rank());
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
    EXPECT_EQ(message, input(500'000, 20, 0));
    expect_sum(sum, 21, 2);
  });
}

TEST_P(LongCalls, may_be_waited_for_from_the_last_to_the_first) {
  expect_success(2, [](Communicator& comm) {
    auto large = input(5'000'000, 0, comm.rank()), larger = input(6'000'000, 1, comm.rank());
    auto small = input(20'000, 2, comm.rank());
    const Work works[] = {comm.all_reduce_async(large), comm.all_reduce_async(larger), comm.all_reduce_async(small)};
    works[2].wait();
    expect_sum(small, 2, 2);
    works[1].wait();
    works[0].wait();
    expect_sum(larger, 1, 2);
    expect_sum(large, 0, 2);
  });
}

}  // namespace
}  // namespace qccl::testing
