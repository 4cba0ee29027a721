// The public API over real shared memory and TCP, ranks as threads.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <latch>
#include <numeric>
#include <thread>

#include "support/error_of.h"
#include "support/reference.h"
#include "support/test_data.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Transports, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

float value(int rank, std::size_t i) { return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101); }

std::vector<float> input_of(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i);
  return data;
}

float sum_at(int world, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value(rank, i);
  return sum;
}

TEST_P(Transports, all_reduce_is_exact_for_small_medium_and_large_tensors) {
  for (const int world : {1, 2, 3, 5}) {
    expect_success(world, [](Communicator& comm) {
      for (const std::size_t count : {0, 1, 7, 512, 513, 20000, 300007}) {
        auto data = input_of(comm.rank(), count);
        comm.all_reduce(data);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], sum_at(comm.size(), i)) << count << " " << i;
      }
    });
  }
}

TEST_P(Transports, operations_in_flight_are_named_with_what_they_wait_for) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0f);
    std::vector<char> go(1);
    if (comm.rank() == 0) {
      const Work sum = comm.all_reduce_async(data);
      const std::vector<std::string> waiting = comm.in_flight();
      ASSERT_EQ(waiting.size(), 1u);
      EXPECT_TRUE(waiting[0].starts_with("all_reduce(count=100000, ")) << waiting[0];
      EXPECT_NE(waiting[0].find(" waits for rank 1 (got 0 of "), std::string::npos) << waiting[0];
      comm.send(go, 1);
      sum.wait();
    } else {
      comm.recv(go, 0);
      comm.all_reduce(data);
    }
    EXPECT_TRUE(comm.in_flight().empty());
  });
}

TEST_P(Transports, a_wait_that_is_given_up_names_the_operation_and_whom_it_waits_for) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0f);
    std::vector<char> go(1);
    comm.barrier();
    if (comm.rank() == 0) {
      const Work sum = comm.all_reduce_async(data);
      const ErrorInfo late = error_of([&] { sum.wait(std::chrono::milliseconds(1)); });
      EXPECT_EQ(late.kind, ErrorKind::deadline_exceeded);
      EXPECT_EQ(late.operation, "all_reduce");
      EXPECT_EQ(late.sequence, sum.number());
      EXPECT_GT(late.sequence, 1u);
      EXPECT_EQ(late.peer, 1);
      EXPECT_NE(late.message.find("waiting for rank 1 (got 0 of "), std::string::npos) << late.message;
      EXPECT_FALSE(sum.done());
      comm.send(go, 1);
      sum.wait();
    } else {
      comm.recv(go, 0);
      comm.all_reduce(data);
    }
  });
}

TEST_P(Transports, calls_in_a_group_have_the_number_of_their_first) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> first(10, 1.0f);
    std::vector<float> second(20, 1.0f);
    const Work alone = comm.all_reduce_async(first);
    comm.group_start();
    comm.all_reduce(first);
    comm.all_reduce(second);
    const Work both = comm.group_end();
    const Work next = comm.all_reduce_async(first);
    for (const Work& work : {alone, both, next}) work.wait();
    EXPECT_EQ(both.number(), alone.number() + 1);
    EXPECT_EQ(next.number(), alone.number() + 3);
    EXPECT_EQ(Work().number(), 0u);
  });
}

TEST_P(Transports, a_group_of_some_ranks_is_described_by_these) {
  expect_success(3, [](Communicator& comm) {
    Communicator pair = comm.subgroup(comm.rank() == 1 ? std::vector{1} : std::vector{2, 0}, "pair");
    const std::string own = "(" + comm.describe().substr(0, comm.describe().find(", "));
    EXPECT_TRUE(comm.describe().starts_with("rank " + std::to_string(comm.rank()) + " of 3 from "));
    const bool alone = comm.rank() == 1;
    const std::string place = std::to_string(pair.rank()) + " of " + (alone ? "1" : "2");
    const std::string expected = "rank " + place + " in group '" + pair.name() + "' " + own + ")";
    EXPECT_TRUE(pair.describe().starts_with(expected)) << pair.describe();
    EXPECT_EQ(pair.describe().ends_with(" to rank " + std::to_string(2 - comm.rank())), !alone) << pair.describe();
  });
}

// Small operations use the board if there is one, large ones frames.
TEST_P(Transports, every_type_and_operation_equals_the_reduction_in_rank_order) {
  constexpr int kWorld = 3;
  expect_success(kWorld, [](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (!supports(type, op)) continue;
        for (const std::size_t count : {5, 7001}) {
          engine::ResolvedCall call;
          call.collective = Collective::all_reduce;
          call.count = count;
          call.type = type;
          call.op = op;
          const auto inputs = make_inputs(Pattern::with_nan, type, count, kWorld, count);
          ByteVector output(inputs[rank].size());
          const Algorithm algorithm = count < 100 ? Algorithm::automatic : Algorithm::sra;
          comm.all_reduce(inputs[rank].data(), output.data(), count, type,
                          {.op = op, .premul_factor = premul_factor_of(comm.rank()), .algorithm = algorithm});
          EXPECT_EQ(output, expected_outputs(call, inputs)[rank]) << call.describe();
        }
      }
    }
  });
}

TEST_P(Transports, a_repeated_premul_sum_takes_each_calls_own_factor_and_data) {
  expect_success(2, [](Communicator& comm) {
    for (const std::size_t count : {3, 20'000}) {
      for (int round = 1; round <= 5; ++round) {
        std::vector<float> data(count, static_cast<float>(round));
        comm.all_reduce(data, {.op = ReduceOp::premul_sum, .premul_factor = static_cast<double>(round + comm.rank())});
        EXPECT_EQ(data, std::vector<float>(count, static_cast<float>(round * (2 * round + 1))));
      }
    }
  });
}

struct Particle {
  double position[3];
  std::int16_t charge;
  bool operator==(const Particle&) const = default;
};

std::vector<Particle> particles_of(int rank, std::size_t count) {
  std::vector<Particle> particles(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double x = value(rank, i);
    particles[i] = {{x, -x, 1 / (x + 1)}, static_cast<std::int16_t>(rank)};
  }
  return particles;
}

TEST_P(Transports, data_of_any_element_size_moves) {
  expect_success(3, [](Communicator& comm) {
    for (const std::size_t count : {1, 9001}) {
      auto particles = particles_of(comm.rank(), count);
      comm.broadcast(particles, {.root = 1});
      EXPECT_EQ(particles, particles_of(1, count));
      std::vector<Particle> gathered(3 * count);
      comm.all_gather(particles_of(comm.rank(), count), gathered);
      for (int rank = 0; rank < 3; ++rank) {
        const auto part = particles_of(rank, count);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), gathered.begin() + rank * static_cast<std::ptrdiff_t>(count)));
      }
      const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
      particles = particles_of(comm.rank(), count);
      std::vector<Particle> received(count);
      EXPECT_EQ(comm.sendrecv(particles, next, received, previous), previous);
      EXPECT_EQ(received, particles_of(previous, count));
      gathered.pop_back();
      EXPECT_THROW(comm.all_gather(particles, gathered), Error);
    }
  });
}

TEST_P(Transports, every_collective_moves_the_right_data) {
  expect_success(4, [](Communicator& comm) {
    const int world = comm.size();
    for (const std::size_t count : {1, 100, 5000, 100003}) {
      auto buffer = input_of(comm.rank(), count);
      comm.broadcast(buffer, {.root = 2});
      EXPECT_EQ(buffer, input_of(2, count));

      const auto own = input_of(comm.rank(), count);
      std::vector<float> gathered(count * static_cast<std::size_t>(world));
      comm.all_gather(own.data(), gathered.data(), count, DataType::float32);
      for (int rank = 0; rank < world; ++rank) {
        const auto part = input_of(rank, count);
        EXPECT_EQ(std::memcmp(part.data(), gathered.data() + static_cast<std::size_t>(rank) * count, count * 4), 0);
      }

      const auto whole = input_of(comm.rank(), count * static_cast<std::size_t>(world));
      std::vector<float> part(count);
      comm.reduce_scatter(whole.data(), part.data(), count, DataType::float32);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(part[i], sum_at(world, i + static_cast<std::size_t>(comm.rank()) * count));
      }
      comm.barrier();
    }
  });
}

TEST_P(Transports, compressed_results_are_the_same_bits_on_every_rank_and_within_the_bound) {
  expect_success(3, [](Communicator& comm) {
    constexpr std::size_t kCount = 200'003;
    for (const int bits : {1, 3, 4, 8, 16, 32}) {
      auto data = input_of(comm.rank(), kCount);
      comm.all_reduce(data, {.compression = minmax({.bits = bits})});
      const double unit = 303.0 / (std::exp2(bits) - 1);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_NEAR(data[i], sum_at(comm.size(), i), 1.5 * unit + 1e-3) << bits << " bits, element " << i;
      }
      std::vector<float> everyone(kCount * static_cast<std::size_t>(comm.size()));
      comm.all_gather(data.data(), everyone.data(), kCount, DataType::float32);
      for (int rank = 0; rank < comm.size(); ++rank) {
        EXPECT_EQ(std::memcmp(data.data(), everyone.data() + static_cast<std::size_t>(rank) * kCount, kCount * 4), 0);
      }
    }
  });
}

TEST_P(Transports, asynchronous_operations_complete_in_any_order_of_waiting) {
  expect_success(3, [](Communicator& comm) {
    std::vector<std::vector<float>> buffers;
    std::vector<Work> works;
    for (std::size_t k = 0; k < 40; ++k) buffers.push_back(input_of(comm.rank(), 1 + k * 1000));
    for (auto& buffer : buffers) works.push_back(comm.all_reduce_async(buffer));
    for (std::size_t k = works.size(); k-- > 0;) works[k].wait();
    for (const auto& buffer : buffers) {
      for (std::size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], sum_at(comm.size(), i));
    }
  });
}

TEST_P(Transports, a_dropped_work_is_not_cancelled) {
  expect_success(2, [](Communicator& comm) {
    auto buffer = input_of(comm.rank(), 100'000);
    static_cast<void>(comm.all_reduce_async(buffer));
    comm.barrier();
    comm.close();  // waits for operations in flight
    for (std::size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], sum_at(2, i));
  });
}

// `awaited` is a hint that the caller waits right away: if it does not, the progress thread takes over.
TEST_P(Transports, an_awaited_operation_that_nobody_waits_for_ends_too) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(300'000, 1.0F);
    const Work work = comm.all_reduce_async(data, {.awaited = true});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!work.done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(work.done());
    work.wait();
    EXPECT_EQ(data.back(), 2.0F);
  });
}

TEST_P(Transports, groups_work_side_by_side_from_several_threads) {
  expect_success(4, [](Communicator& comm) {
    const bool low = comm.rank() < 2;
    Communicator half = comm.subgroup(low ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, low ? "low" : "high");
    Communicator mirror = comm.subgroup({3, 2, 1, 0}, "mirror");
    std::thread other([&] {
      for (int i = 0; i < 30; ++i) {
        std::vector<float> data(1000, 1.0F);
        half.all_reduce(data);
        ASSERT_EQ(data[999], 2.0F);
      }
    });
    std::thread third([&] {
      for (int i = 0; i < 30; ++i) {
        std::vector<float> data(50'000, 1.0F);
        mirror.all_reduce(data);
        ASSERT_EQ(data[49'999], 4.0F);
      }
    });
    for (int i = 0; i < 30; ++i) {
      std::vector<std::int32_t> data(10, comm.rank());
      comm.all_reduce(data, {.op = ReduceOp::max});
      ASSERT_EQ(data[0], 3);
    }
    other.join();
    third.join();
    EXPECT_EQ(mirror.rank(), 3 - comm.rank());
  });
}

TEST_P(Transports, groups_posted_in_different_orders_by_one_thread_do_not_deadlock) {
  expect_success(3, [](Communicator& comm) {
    std::vector<Communicator> groups;
    for (int g = 0; g < 6; ++g) groups.push_back(comm.subgroup({0, 1, 2}, "group" + std::to_string(g)));
    std::vector<std::vector<float>> buffers(groups.size(), std::vector<float>(60'000, 1.0F));
    std::vector<Work> works(groups.size());
    for (std::size_t k = 0; k < groups.size(); ++k) {
      const std::size_t g = (k * 5 + static_cast<std::size_t>(comm.rank()) * 2) % groups.size();
      works[g] = groups[g].all_reduce_async(buffers[g]);
    }
    for (std::size_t k = 0; k < groups.size(); ++k) {
      works[(k + static_cast<std::size_t>(comm.rank())) % groups.size()].wait();
    }
    for (const auto& buffer : buffers) ASSERT_EQ(buffer[59'999], 3.0F);
  });
}

TEST_P(Transports, a_wrong_argument_throws_and_leaves_the_group_usable) {
  expect_success(2, [](Communicator& comm) {
    std::vector<std::int32_t> integers(4, 1);
    EXPECT_THROW(comm.all_reduce(integers, {.op = ReduceOp::avg}), Error);
    EXPECT_THROW(comm.broadcast(integers, {.root = 7}), Error);
    EXPECT_THROW(comm.all_reduce(nullptr, nullptr, 5, DataType::float32), Error);
    EXPECT_THROW(comm.all_reduce(integers, {.compression = minmax()}), Error);
    EXPECT_THROW(comm.subgroup({0, 5}, "nobody"), Error);
    comm.all_reduce(integers);
    EXPECT_EQ(integers[0], 2);
  });
}

TEST_P(Transports, abort_ends_operations_on_all_ranks_with_the_reason) {
  const auto failures = run_threads(3, options(), [](Communicator& comm) {
    std::vector<float> data(1'000'000);
    if (comm.rank() != 1) return comm.all_reduce(data);
    comm.abort("operator asked");
    comm.all_reduce(data);
  });
  for (const auto& failure : failures) EXPECT_NE(failure.find("operator asked"), std::string::npos) << failure;
}

TEST_P(Transports, a_rank_that_makes_no_call_hears_of_the_failure) {
  const auto failures = run_threads(3, options(), [](Communicator& comm) {
    const Work failed = comm.when_failed();
    EXPECT_FALSE(failed.done());
    std::vector<float> data(10);
    if (comm.rank() == 0) error_of([&] { comm.all_reduce(data, {.timeout = std::chrono::milliseconds(50)}); });
    std::promise<void> heard;
    failed.notify([&] { heard.set_value(); });
    heard.get_future().wait();
    EXPECT_EQ(failed.error()->message, comm.when_failed().error()->message);
    failed.wait();
  });
  for (const auto& failure : failures) EXPECT_NE(failure.find("all_reduce(count=10, "), std::string::npos) << failure;
}

TEST_P(Transports, a_group_that_is_closed_has_not_failed) {
  expect_success(2, [](Communicator& comm) {
    Communicator pair = comm.dup();
    const Work failed = pair.when_failed();
    pair.close();
    EXPECT_TRUE(failed.done());
    EXPECT_FALSE(failed.error());
  });
}

TEST_P(Transports, abort_ends_what_close_waits_for_in_another_thread) {
  std::latch both_have_begun(2);
  expect_success(2, [&](Communicator& comm) {
    both_have_begun.arrive_and_wait();  // a rank that still starts would fail there
    std::vector<float> data(10);
    if (comm.rank() == 1) {
      const ErrorInfo failure = error_of([&] { comm.recv(data, 0); });
      EXPECT_NE(failure.message.find("operator asked"), std::string::npos) << failure.message;
      return;
    }
    Work work = comm.recv_async(data, 1);
    std::jthread closer([&] { comm.close(); });
    const auto is_open = [&] {
      try {
        static_cast<void>(comm.in_flight());
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    while (is_open()) std::this_thread::yield();
    comm.abort("operator asked");
    closer.join();
    EXPECT_EQ(error_of([&] { work.wait(); }).kind, ErrorKind::aborted);
    EXPECT_EQ(error_of([&] { comm.abort("too late"); }).kind, ErrorKind::misuse);
  });
}

TEST_P(Transports, wait_with_a_timeout_gives_up_waiting_and_not_the_operation) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F);
    if (comm.rank() == 1) comm.barrier();
    Work work = comm.rank() == 0 ? comm.barrier_async() : comm.barrier_async();
    if (comm.rank() == 0) {
      work.wait();
      work = comm.barrier_async();
    }
    work.wait();
    comm.all_reduce(data);
    EXPECT_EQ(data[0], 2.0F);
  });
}

TEST_P(Transports, misaligned_buffers_work) {
  expect_success(2, [](Communicator& comm) {
    for (const std::size_t offset : {1, 2, 3}) {
      constexpr std::size_t kCount = 70'001;
      std::vector<char> storage(kCount * 4 + 8);
      const auto data = input_of(comm.rank(), kCount);
      std::memcpy(storage.data() + offset, data.data(), kCount * 4);
      const CallOptions call{.compression = minmax({.bits = 8})};
      comm.all_reduce(storage.data() + offset, storage.data() + offset, kCount, DataType::float32);
      std::vector<float> result(kCount);
      std::memcpy(result.data(), storage.data() + offset, kCount * 4);
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], sum_at(2, i));
      comm.all_reduce(storage.data() + offset, storage.data() + offset, kCount, DataType::float32, call);
    }
  });
}

TEST(Communicator, closed_communicators_say_so) {
  const auto failures = run_threads(2, {}, [](Communicator& comm) {
    comm.barrier();
    comm.close();
    comm.barrier();
  });
  for (const auto& failure : failures) EXPECT_NE(failure.find("closed"), std::string::npos) << failure;
}

}  // namespace
}  // namespace qccl::testing
