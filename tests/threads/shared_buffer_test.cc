// Buffers from Communicator::allocate(), over real shared memory and, as ordinary memory, over TCP.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

// Any bits: NaN, infinities and denormals among them.
template <class T>
void fill(std::span<T> data, int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  for (T& element : data) {
    const std::uint64_t bits = random();
    std::memcpy(&element, &bits, sizeof(T));
  }
}

// The result of an all_reduce of the same data in a private buffer.
template <class T>
std::vector<T> expected(Communicator& comm, std::span<const T> input, const CallOptions& options) {
  std::vector<T> data(input.begin(), input.end());
  CallOptions private_path = options;
  private_path.algorithm = Algorithm::sra;
  comm.all_reduce(data, private_path);
  return data;
}

// `asked` may be automatic only if the buffer is shared. Otherwise the buffer is like any other, and the chosen
// algorithm may add the ranks in another order.
template <class T>
void expect_same_bits(Communicator& comm, std::size_t count, ReduceOp op, Algorithm asked) {
  auto buffer = comm.allocate<T>(count);
  for (int round = 0; round < 3; ++round) {
    fill(std::span<T>(buffer), comm.rank() + 10 * round);
    const auto reference = expected<T>(comm, std::span<T>(buffer), {.op = op});
    comm.all_reduce(std::span<T>(buffer), {.op = op, .algorithm = asked});
    ASSERT_EQ(std::memcmp(buffer.data(), reference.data(), count * sizeof(T)), 0) << count << " " << to_string(op);
  }
}

TEST_P(Transports, a_shared_buffer_reduces_to_the_same_bits_as_a_private_one) {
  const Algorithm asked = GetParam() == TransportChoice::shm ? Algorithm::automatic : Algorithm::sra;
  for (const int world : {1, 2, 3, 5}) {
    expect_success(world, [asked](Communicator& comm) {
      for (const std::size_t count : {1, 7, 513, 4097, 100'003}) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max})
          expect_same_bits<float>(comm, count, op, asked);
        expect_same_bits<bfloat16>(comm, count, ReduceOp::sum, asked);
        expect_same_bits<std::int64_t>(comm, count, ReduceOp::prod, asked);
      }
    });
  }
}

TEST_P(Transports, parts_of_a_shared_buffer_are_reduced_and_the_rest_stays) {
  expect_success(3, [](Communicator& comm) {
    auto buffer = comm.allocate<float>(50'000);
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    comm.all_reduce(std::span<float>(buffer).subspan(10'001, 20'000));
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      ASSERT_EQ(buffer[i], i >= 10'001 && i < 30'001 ? 3.0F : 1.0F) << i;
    }
  });
}

TEST_P(Transports, only_shared_memory_reduces_a_shared_buffer_without_sending) {
  expect_success(2, [this](Communicator& comm) {
    auto buffer = comm.allocate<float>(100'000);
    const auto before = comm.traffic().payload_bytes_sent;
    comm.all_reduce(std::span<float>(buffer));
    EXPECT_EQ(comm.traffic().payload_bytes_sent == before, GetParam() == TransportChoice::shm);
  });
}

TEST_P(Transports, many_shared_buffers_come_and_go_between_other_calls) {
  expect_success(3, [](Communicator& comm) {
    auto lasting = comm.allocate<std::int32_t>(3000);
    Communicator other = comm.subgroup({0, 1, 2}, "other");
    for (int round = 0; round < 50; ++round) {
      auto passing = comm.allocate<std::int32_t>(1000 + static_cast<std::size_t>(round) * 997);
      auto elsewhere = other.allocate<std::int32_t>(2000);
      for (const std::int32_t zero : passing) ASSERT_EQ(zero, 0);
      std::fill(passing.begin(), passing.end(), comm.rank());
      std::fill(lasting.begin(), lasting.end(), round);
      std::fill(elsewhere.begin(), elsewhere.end(), 7);
      const Work first = comm.all_reduce_async(std::span<std::int32_t>(passing));
      const Work second = other.all_reduce_async(std::span<std::int32_t>(elsewhere));
      const Work third = comm.all_reduce_async(std::span<std::int32_t>(lasting));
      comm.barrier();
      first.wait();
      second.wait();
      third.wait();
      ASSERT_EQ(passing[passing.size() - 1], 3);
      ASSERT_EQ(lasting[2999], 3 * round);
      ASSERT_EQ(elsewhere[1999], 21);
    }
  });
}

TEST_P(Transports, a_premul_sum_of_a_shared_buffer_takes_every_ranks_factor) {
  expect_success(3, [](Communicator& comm) {
    auto buffer = comm.allocate<float>(50'000);
    std::fill(buffer.begin(), buffer.end(), 2.0F);
    comm.all_reduce(std::span<float>(buffer), {.op = ReduceOp::premul_sum, .premul_factor = comm.rank() + 0.5});
    for (const float value : buffer) ASSERT_EQ(value, 2 * (0.5F + 1.5F + 2.5F));
  });
}

TEST_P(Transports, a_compressed_all_reduce_of_a_shared_buffer_is_compressed) {
  expect_success(2, [](Communicator& comm) {
    auto buffer = comm.allocate<float>(100'000);
    const auto before = comm.traffic().payload_bytes_sent;
    comm.all_reduce(std::span<float>(buffer), {.compression = minmax({.bits = 4})});
    EXPECT_GT(comm.traffic().payload_bytes_sent, before);
  });
}

TEST_P(Transports, different_sizes_are_an_error_that_names_them) {
  const auto failures =
      run_threads(2, options(), [](Communicator& comm) { comm.allocate<float>(comm.rank() == 0 ? 100 : 200); });
  EXPECT_NE(failures[0].find("rank 0 asks for 400 bytes, rank 1 for 800"), std::string::npos) << failures[0];
  EXPECT_NE(failures[1].find("rank 1 asks for 800 bytes, rank 0 for 400"), std::string::npos) << failures[1];
}

TEST_P(Transports, more_elements_than_there_are_addresses_are_an_error_on_all_and_leave_the_group_usable) {
  for (const std::size_t count : {std::numeric_limits<std::size_t>::max() / 8 + 2, std::size_t{1} << 60}) {
    expect_success(2, [count](Communicator& comm) {
      const ErrorInfo failure = error_of([&] { comm.allocate<double>(count); });
      EXPECT_EQ(failure.kind, ErrorKind::resource_exhausted) << failure.message;
      EXPECT_NE(failure.message.find("rank 0 can't get"), std::string::npos) << failure.message;
      auto buffer = comm.allocate<float>(1000);
      buffer[999] = 1;
      comm.all_reduce(std::span<float>(buffer));
      EXPECT_EQ(buffer[999], 2.0F);
    });
  }
}

TEST(SharedBuffer, passed_by_one_rank_only_fails_on_all_and_names_both_calls) {
  ThreadJobOptions shm;
  shm.transport = TransportChoice::shm;
  const auto failures = run_threads(2, shm, [](Communicator& comm) {
    auto shared = comm.allocate<float>(10'000);
    std::vector<float> own(10'000);
    comm.all_reduce(comm.rank() == 0 ? std::span<float>(shared) : std::span<float>(own));
  });
  for (const auto& failure : failures) {
    EXPECT_NE(failure.find("byte 0 of shared buffer 1"), std::string::npos) << failure;
  }
}

TEST(SharedBuffer, outlives_its_communicator) {
  ThreadJobOptions shm;
  shm.transport = TransportChoice::shm;
  const auto failures = run_threads(2, shm, [](Communicator& comm) {
    auto group = comm.subgroup({0, 1}, "short");
    auto buffer = group.allocate<float>(10'000);
    group.close();
    buffer[9'999] = 1;
    comm.all_reduce(std::span<float>(buffer));
    ASSERT_EQ(buffer[9'999], 2.0F);
  });
  for (const auto& failure : failures) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace qccl::testing
