// Groups made from groups: split by colour, duplicated, nested, many at once and many in turn, over
// real shared memory and TCP.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Groups : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Groups, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

// The ranks of `whole` that are in `part`, in its order.
std::vector<std::int32_t> members_of(Communicator& part, const Communicator& whole) {
  std::vector<std::int32_t> members(static_cast<std::size_t>(part.size()));
  const std::int32_t own = whole.rank();
  part.all_gather(&own, members.data(), 1, DataType::int32);
  return members;
}

using Ranks = std::vector<std::int32_t>;

TEST_P(Groups, are_split_by_colour_and_ordered_by_key_then_rank) {
  expect_success(6, [](Communicator& comm) {
    const bool odd = comm.rank() % 2 == 1;
    auto half = comm.split(odd ? 1 : 0, -comm.rank());
    ASSERT_TRUE(half);
    EXPECT_EQ(members_of(*half, comm), odd ? (Ranks{5, 3, 1}) : (Ranks{4, 2, 0}));
    auto same_key = comm.split(odd ? 7 : 1'000'000);
    EXPECT_EQ(members_of(*same_key, comm), odd ? (Ranks{1, 3, 5}) : (Ranks{0, 2, 4}));
    auto some = comm.split(comm.rank() < 2 ? -1 : 3, comm.rank() == 5 ? 0 : 1);
    EXPECT_EQ(some.has_value(), comm.rank() >= 2);
    const Ranks expected = some ? Ranks{5, 2, 3, 4} : Ranks{};
    EXPECT_EQ(some ? members_of(*some, comm) : Ranks{}, expected);
    comm.barrier();
  });
}

ErrorKind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::corrupt_data;
}

TEST_P(Groups, estimate_recorded_calls_on_one_rank_and_send_nothing) {
  expect_success(2, [](Communicator& comm) {
    Communicator twin = comm.dup();
    comm.barrier();
    if (comm.rank() == 0) {
      std::vector<float> data(1 << 20, 1.0F);
      const auto estimate = [&](std::size_t count, int calls) {
        comm.group_start();
        for (int i = 0; i < calls; ++i) comm.all_reduce_async(data.data(), data.data(), count, DataType::float32);
        return comm.group_estimate();
      };
      const Traffic before = comm.traffic();
      EXPECT_EQ(estimate(1 << 20, 0), 0);
      EXPECT_GT(estimate(16, 1), 0);
      EXPECT_GT(estimate(1 << 20, 1), 10 * estimate(16, 1));
      EXPECT_DOUBLE_EQ(estimate(1 << 20, 3), 3 * estimate(1 << 20, 1));
      comm.group_start();
      comm.send(data.data(), 1 << 20, DataType::float32, 1);
      EXPECT_GT(comm.group_estimate(), 0);
      const std::vector<std::size_t> counts{0, 1 << 18};
      comm.group_start();
      comm.all_to_all_v(data.data(), counts, data.data() + (1 << 19), counts, DataType::float32);
      const double exchange = comm.group_estimate();
      EXPECT_GT(exchange, estimate(16, 1));
      EXPECT_EQ(comm.traffic().payload_bytes_sent, before.payload_bytes_sent);
      EXPECT_EQ(data[0], 1.0F);
      EXPECT_EQ(kind_of([&] { comm.group_estimate(); }), ErrorKind::misuse);
      comm.group_start();
      twin.all_reduce(data);
      EXPECT_EQ(kind_of([&] { comm.group_estimate(); }), ErrorKind::misuse);
    }
    std::vector<float> sum(8, 1.0F);
    comm.all_reduce(sum);  // in step with the rank that estimated nothing
    EXPECT_EQ(sum[0], 2.0F);
    EXPECT_EQ(twin.world_ranks(), (std::vector{0, 1}));
    EXPECT_EQ(comm.subgroup({comm.rank()}, "alone").world_ranks(), std::vector{comm.rank()});
  });
}

TEST_P(Groups, nest_and_keep_their_own_sequences) {
  expect_success(4, [](Communicator& comm) {
    Communicator twin = comm.dup();
    auto half = twin.split(comm.rank() / 2);
    Communicator half_twin = half->dup();
    auto alone = half_twin.split(half_twin.rank());
    Communicator reversed = half->subgroup({1, 0}, "reversed");
    std::vector<float> data[5];
    Communicator* groups[] = {&comm, &twin, &*half, &half_twin, &*alone};
    std::vector<Work> works;
    for (std::size_t k = 0; k < 5; ++k) {
      const std::size_t i = (k + static_cast<std::size_t>(comm.rank())) % 5;  // posted in any order
      data[i].assign(50'000, 1.0F);
      works.push_back(groups[i]->all_reduce_async(data[i]));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(data[i].back(), static_cast<float>(groups[i]->size()));
    EXPECT_EQ(reversed.rank(), 1 - half->rank());
    EXPECT_EQ(alone->size(), 1);
    std::vector<int> received(1);
    reversed.sendrecv(std::vector<int>{comm.rank()}, 1 - reversed.rank(), received, kAnySource);
    EXPECT_EQ(received[0], comm.rank() ^ 1);
  });
}

TEST_P(Groups, of_a_duplicate_share_settings_and_those_of_a_split_do_not) {
  expect_success(2, [](Communicator& comm) {
    comm.set_compression(minmax({.bits = 4}));
    constexpr std::size_t kCount = 1 << 20;
    EXPECT_EQ(comm.dup().effective_compression(kCount, DataType::float32), minmax({.bits = 4}));
    EXPECT_EQ(comm.split(0)->effective_compression(kCount, DataType::float32), none());
  });
}

TEST_P(Groups, of_the_same_list_and_name_are_each_their_own) {
  expect_success(2, [](Communicator& comm) {
    Communicator first = comm.subgroup({0, 1}, "pair");
    Communicator second = comm.subgroup({0, 1}, "pair");
    std::vector<float> a(1000, 1.0F);
    std::vector<float> b(2000, 1.0F);
    const Work one = comm.rank() == 0 ? first.all_reduce_async(a) : second.all_reduce_async(b);
    const Work other = comm.rank() == 0 ? second.all_reduce_async(b) : first.all_reduce_async(a);
    one.wait();
    other.wait();
    EXPECT_EQ(a[999] + b[1999], 4.0F);
    // A late message of a closed group must not match a receive of another group.
    if (comm.rank() == 0) first.send(std::vector<int>{1}, 1);
    first.close();
    Communicator third = comm.subgroup({0, 1}, "pair");
    std::vector<int> received(1);
    third.sendrecv(std::vector<int>{2}, 1 - comm.rank(), received, 1 - comm.rank());
    EXPECT_EQ(received[0], 2);
  });
}

TEST(BoardGroups, of_a_name_used_again_go_through_the_board_again) {
  const auto failures = run_threads(2, {.transport = TransportChoice::shm, .compression = {}}, [](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      Communicator pair = comm.subgroup({0, 1}, "pair");
      const std::uint64_t before = pair.traffic().shared_bytes_sent;
      std::vector<float> data(10, 1.0F);
      pair.all_reduce(data);
      EXPECT_EQ(pair.traffic().shared_bytes_sent - before, 40u) << "round " << round;
    }
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST_P(Groups, that_wait_for_their_ranks_end_with_the_abort_of_their_parent) {
  std::promise<void> ended;
  expect_success(2, [&](Communicator& comm) {
    Communicator parent = comm.dup();
    comm.barrier();
    if (comm.rank() == 1) {
      EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(50)), std::future_status::ready);
      return;
    }
    std::string failure;
    std::atomic<bool> returned = false;
    std::thread maker([&] {
      try {
        parent.subgroup({0, 1}, "pair");
      } catch (const Error& error) {
        failure = error.what();
      }
      returned = true;
    });
    while (!returned) parent.abort("operator asked");  // may come before the maker waits
    maker.join();
    EXPECT_NE(failure.find("operator asked"), std::string::npos) << failure;
    ended.set_value();
  });
}

TEST_P(Groups, of_an_aborted_parent_are_refused_on_every_rank) {
  expect_success(2, [](Communicator& comm) {
    Communicator parent = comm.dup();
    comm.barrier();
    if (comm.rank() == 1) parent.abort("operator asked");
    const auto failure_of = [](const auto& make) -> std::string {
      try {
        make();
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    const std::string twin = failure_of([&] { parent.dup(); });
    const std::string pair = failure_of([&] { parent.subgroup({0, 1}, "pair"); });
    EXPECT_NE(twin.find("operator asked"), std::string::npos) << twin;
    EXPECT_NE(pair.find("operator asked"), std::string::npos) << pair;
    comm.barrier();
  });
}

TEST_P(Groups, can_not_be_made_in_a_recorded_group) {
  expect_success(2, [](Communicator& comm) {
    comm.group_start();
    EXPECT_THROW(comm.dup(), Error);
    EXPECT_THROW(comm.split(0), Error);
    EXPECT_THROW(comm.subgroup({0, 1}, "pair"), Error);
    comm.group_end().wait();
  });
}

TEST_P(Groups, many_at_once_share_the_connections) {
  expect_success(3, [](Communicator& comm) {
    constexpr std::size_t kGroups = 150;  // more than the board has cells
    std::vector<Communicator> groups;
    for (std::size_t g = 0; g < kGroups; ++g) groups.push_back(comm.dup());
    std::vector<std::vector<float>> data(kGroups);
    std::vector<Work> works;
    for (std::size_t k = 0; k < kGroups; ++k) {
      const std::size_t g = (k * 7 + static_cast<std::size_t>(comm.rank()) * 31) % kGroups;
      data[g].assign(1 + g * 100, static_cast<float>(g));
      works.push_back(groups[g].all_reduce_async(data[g]));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t g = 0; g < kGroups; ++g) EXPECT_EQ(data[g].back(), 3.0F * static_cast<float>(g));
  });
}

std::size_t heap_in_use() { return mallinfo2().uordblks; }

// The heap in use while all ranks are between two barriers.
std::size_t heap_of_all(Communicator& comm) {
  comm.barrier();
  const std::size_t bytes = heap_in_use();
  comm.barrier();
  return bytes;
}

TEST_P(Groups, a_thousand_in_turn_leave_nothing_behind) {
  std::size_t before = 0;
  std::size_t after = 0;
  expect_success(2, [&](Communicator& comm) {
    const auto one_round = [&](int i) {
      Communicator twin = comm.dup();
      auto part = twin.split(i % 3 == 0 ? comm.rank() : 0);
      Communicator named = part->subgroup({part->rank()}, "named");
      Communicator again = comm.subgroup({1, 0}, "again");
      std::vector<float> data(100, 1.0F);
      again.all_reduce(data);
      part->sendrecv(data, part->rank(), data, kAnySource);
    };
    // Enough rounds to fill the memory of closed groups.
    for (int i = 0; i < 400; ++i) one_round(i);
    const std::size_t first = heap_of_all(comm);
    for (int i = 0; i < 300; ++i) one_round(i);
    const std::size_t last = heap_of_all(comm);
    if (comm.rank() == 0) before = first;
    if (comm.rank() == 0) after = last;
  });
  EXPECT_LT(after, before + 16 * 1024) << "1200 groups a rank between the two";
}

}  // namespace
}  // namespace qccl::testing
