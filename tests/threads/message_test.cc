// Messages and calls in groups through the public API, over real shared memory and TCP.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Messages : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Messages, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

std::vector<std::int32_t> letter(int from, int to, std::size_t count) {
  std::vector<std::int32_t> data(count);
  std::iota(data.begin(), data.end(), from * 1000 + to * 100);
  return data;
}

TEST_P(Messages, of_any_size_arrive_at_blocking_calls) {
  expect_success(2, [](Communicator& comm) {
    for (const std::size_t count : {0, 1, 1000, 16384, 16385, 3'000'001}) {
      const int other = 1 - comm.rank();
      std::vector<std::int32_t> received(count, -1);
      if (comm.rank() == 0) comm.send(letter(0, 1, count), other);
      EXPECT_EQ(comm.recv(received, other), other);
      if (comm.rank() == 1) comm.send(letter(1, 0, count), other);
      EXPECT_EQ(received, letter(other, comm.rank(), count));
    }
  });
}

TEST_P(Messages, sendrecv_shifts_around_a_ring_of_any_size) {
  for (const int world : {1, 2, 5}) {
    expect_success(world, [](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      for (const std::size_t count : {1, 20'000, 500'000}) {
        std::vector<std::int32_t> received(count);
        EXPECT_EQ(comm.sendrecv(letter(comm.rank(), next, count), next, received, previous, {.tag = 3}), previous);
        EXPECT_EQ(received, letter(previous, comm.rank(), count));
      }
    });
  }
}

TEST_P(Messages, of_any_source_are_all_taken_and_named) {
  expect_success(4, [](Communicator& comm) {
    constexpr int kEach = 20;
    if (comm.rank() != 2) {
      for (int i = 0; i < kEach; ++i) comm.send(letter(comm.rank(), i, 3000), 2, {.tag = 1});
      return comm.barrier();
    }
    std::vector<int> seen(4);
    for (int i = 0; i < 3 * kEach; ++i) {
      std::vector<std::int32_t> received(3000);
      const int from = comm.recv(received, kAnySource, {.tag = 1});
      ASSERT_TRUE(from >= 0 && from < 4 && from != 2);
      EXPECT_EQ(received, letter(from, seen[static_cast<std::size_t>(from)]++, 3000)) << "each in its sender's order";
    }
    EXPECT_EQ(seen, (std::vector<int>{kEach, kEach, 0, kEach}));
    comm.barrier();
  });
}

TEST_P(Messages, of_a_work_name_their_source_when_it_is_done) {
  expect_success(2, [](Communicator& comm) {
    std::vector<std::int32_t> received(10);
    const Work incoming = comm.recv_async(received, kAnySource);
    EXPECT_EQ(Work().source(), -1);
    const auto sent = letter(comm.rank(), 1 - comm.rank(), 10);
    const Work outgoing = comm.send_async(sent, 1 - comm.rank());
    incoming.wait();
    outgoing.wait();
    EXPECT_EQ(incoming.source(), 1 - comm.rank());
    EXPECT_EQ(outgoing.source(), -1);
  });
}

TEST_P(Messages, of_several_threads_do_not_mix) {
  expect_success(2, [](Communicator& comm) {
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 50; ++i) {
          const std::size_t count = i % 10 == 9 ? 100'000 : 100;
          std::vector<std::int32_t> received(count);
          comm.sendrecv(letter(comm.rank(), tag, count), 1 - comm.rank(), received, 1 - comm.rank(), {.tag = tag});
          ASSERT_EQ(received, letter(1 - comm.rank(), tag, count));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Messages, with_wrong_arguments_throw_and_leave_the_group_usable) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(3);
    EXPECT_THROW(comm.send(data, 2), Error);
    EXPECT_THROW(comm.send(data, kAnySource), Error);
    EXPECT_THROW(comm.recv(data, -2), Error);
    EXPECT_THROW(comm.send(data, 0, {.tag = -1}), Error);
    EXPECT_THROW(comm.recv(nullptr, 1, DataType::float32, 0), Error);
    comm.sendrecv(data, 1 - comm.rank(), data, 1 - comm.rank());
  });
}

TEST_P(Messages, that_do_not_fit_are_an_error_on_both_ranks) {
  const auto failures = run_threads(2, options(), [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 10 : 11);
    if (comm.rank() == 0) comm.send(data, 1);
    if (comm.rank() == 1) comm.recv(data, 0);
    comm.barrier();
  });
  for (const auto& failure : failures) {
    EXPECT_NE(failure.find("send(count=10, float32, to=1)"), std::string::npos) << failure;
    EXPECT_NE(failure.find("recv(count=11, float32, from=0)"), std::string::npos) << failure;
  }
}

// ---- calls in groups

TEST_P(Messages, of_a_group_are_exchanged_by_all_with_all) {
  expect_success(4, [](Communicator& comm) {
    for (const std::size_t count : {5, 100'000}) {
      std::vector<std::vector<std::int32_t>> out;
      std::vector<std::vector<std::int32_t>> in(4, std::vector<std::int32_t>(count));
      for (int to = 0; to < 4; ++to) out.push_back(letter(comm.rank(), to, count));
      comm.group_start();
      for (int peer = 0; peer < 4; ++peer) {
        comm.send(out[static_cast<std::size_t>(peer)], peer);  // outside a group these blocking calls would deadlock
        EXPECT_EQ(comm.recv(in[static_cast<std::size_t>(peer)], peer), -1);
      }
      comm.group_end().wait();
      for (int peer = 0; peer < 4; ++peer) {
        EXPECT_EQ(in[static_cast<std::size_t>(peer)], letter(peer, comm.rank(), count));
      }
    }
  });
}

TEST_P(Messages, and_collectives_of_several_communicators_form_one_work) {
  expect_success(3, [](Communicator& comm) {
    Communicator other = comm.subgroup({2, 1, 0}, "other");
    std::vector<float> sum(70'000, 1.0F);
    std::vector<float> more(10, 2.0F);
    std::vector<float> third(30'000, 3.0F);
    std::vector<std::int32_t> received(90'000);
    const int next = (comm.rank() + 1) % 3;
    const auto sent = letter(comm.rank(), next, 90'000);
    comm.group_start();
    if (comm.rank() == 0) comm.recv(received, kAnySource);
    comm.all_reduce(sum);
    other.all_reduce(more);
    const Work one = comm.all_reduce_async(third);
    comm.send(sent, next);
    if (comm.rank() != 0) comm.recv(received, kAnySource);
    EXPECT_THROW(one.wait(), Error) << "nothing is posted yet";
    const Work all = comm.group_end();
    all.wait();
    EXPECT_TRUE(one.done());
    one.wait();
    EXPECT_EQ(sum.back(), 3.0F);
    EXPECT_EQ(more.back(), 6.0F);
    EXPECT_EQ(third.back(), 9.0F);
    EXPECT_EQ(received, letter((comm.rank() + 2) % 3, comm.rank(), 90'000));
  });
}

TEST_P(Messages, of_a_group_with_a_wrong_call_are_not_posted) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.0F);
    comm.group_start();
    EXPECT_THROW(comm.group_start(), Error);
    if (comm.rank() == 0) comm.all_reduce(data);
    EXPECT_THROW(comm.send(data, 9), Error);
    EXPECT_THROW(comm.group_end(), Error) << "the refused call ended the group";
    comm.all_reduce(data);
    EXPECT_EQ(data[0], 2.0F) << "the recorded one was never posted";
    comm.group_start();
    comm.group_end().wait();
  });
}

TEST_P(Messages, of_a_group_of_one_thread_are_no_business_of_another) {
  expect_success(2, [](Communicator& comm) {
    Communicator other = comm.subgroup({0, 1}, "other");
    comm.group_start();
    std::vector<float> held(10, 1.0F);
    comm.all_reduce(held);
    std::thread thread([&] {
      std::vector<float> data(10, 1.0F);
      other.all_reduce(data);
      EXPECT_EQ(data[0], 2.0F);
    });
    thread.join();
    EXPECT_EQ(held[0], 1.0F);
    comm.group_end().wait();
    EXPECT_EQ(held[0], 2.0F);
  });
}

TEST_P(Messages, of_a_group_fail_it_with_the_first_failure) {
  const auto failures = run_threads(2, options(), [](Communicator& comm) {
    Communicator other = comm.subgroup({0, 1}, "other");
    std::vector<float> data(100'000, 1.0F);
    std::vector<float> short_of(comm.rank() == 0 ? 5 : 6);
    comm.group_start();
    other.all_reduce(data);
    comm.send(short_of, 1 - comm.rank());
    comm.recv(short_of, 1 - comm.rank());
    const Work all = comm.group_end();
    try {
      all.wait();
    } catch (const Error&) {
      EXPECT_EQ(data[0], 2.0F) << "the other call ends before the group's work does";
      throw;
    }
  });
  for (const auto& failure : failures) EXPECT_NE(failure.find("must be equal"), std::string::npos) << failure;
}

TEST_P(Messages, and_lists_of_buffers_are_one_work) {
  expect_success(3, [](Communicator& comm) {
    const std::size_t counts[] = {1, 0, 7000, 60'000, 3};
    std::vector<std::vector<float>> sums;
    std::vector<std::vector<float>> wholes;
    std::vector<std::vector<float>> parts;
    std::vector<CallBuffers> reduced;
    std::vector<CallBuffers> gathered;
    std::vector<CallBuffers> scattered;
    for (const std::size_t count : counts) {
      sums.emplace_back(count, static_cast<float>(comm.rank()));
      wholes.emplace_back(count * 3, 1.0F);
      parts.emplace_back(count);
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      reduced.push_back({sums[i].data(), sums[i].data(), sums[i].size()});
      scattered.push_back({wholes[i].data(), parts[i].data(), parts[i].size()});
      gathered.push_back({parts[i].data(), wholes[i].data(), parts[i].size()});
    }
    comm.all_reduce_coalesced(reduced, DataType::float32);
    comm.reduce_scatter_coalesced_async(scattered, DataType::float32).wait();
    comm.all_gather_coalesced(gathered, DataType::float32);
    comm.all_reduce_coalesced({}, DataType::float32);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i], std::vector<float>(counts[i], 3.0F));
      EXPECT_EQ(parts[i], std::vector<float>(counts[i], 3.0F));
      EXPECT_EQ(wholes[i], std::vector<float>(counts[i] * 3, 3.0F));
    }
    comm.group_start();
    const Work recorded = comm.all_reduce_coalesced_async(reduced, DataType::float32);
    EXPECT_FALSE(recorded.done());
    comm.group_end().wait();
    EXPECT_TRUE(recorded.done());
    EXPECT_EQ(sums[2], std::vector<float>(counts[2], 9.0F));
  });
}

}  // namespace
}  // namespace qccl::testing
