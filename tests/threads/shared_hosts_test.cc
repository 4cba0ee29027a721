// Buffers from Communicator::allocate() in groups on several hosts: inside each host, all_reduce reads and writes them
// in place.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/thread_job.h"

namespace qccl::testing {
namespace {

void expect_success(int world, const std::function<void(Communicator&)>& body) {
  for (const auto& failure : run_threads(world, {}, body)) EXPECT_EQ(failure, "");
}

void fill(std::span<float> data, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (float& element : data) element = static_cast<float>(random() % 100'000) / 977.0F - 50.0F;
}

// Repeats the call and writes new data at once, so that a peer that reads too late gets wrong data.
void expect_same_bits(Communicator& comm, std::size_t count, const CallOptions& options) {
  auto buffer = comm.allocate<float>(count + 5);
  std::vector<float> own(count);
  const std::span<float> part(buffer.data() + 5, count);
  for (std::uint32_t round = 0; round < 8; ++round) {
    fill(own, 100 * round + static_cast<std::uint32_t>(comm.rank()));
    std::copy(own.begin(), own.end(), part.begin());
    comm.all_reduce(part, options);
    comm.all_reduce(own, options);
    ASSERT_EQ(std::memcmp(part.data(), own.data(), count * sizeof(float)), 0)
        << count << " " << to_string(options.op) << " " << to_string(options.algorithm) << " round " << round;
  }
}

TEST(SharedHosts, a_shared_buffer_reduces_to_the_same_bits_as_a_private_one) {
  for (const auto& [grid, world] : {std::pair("2x2", 4), std::pair("2x3", 6), std::pair("3x2", 6)}) {
    const Hosts hosts(grid);
    expect_success(world, [](Communicator& comm) {
      for (const std::size_t count : {1, 7, 4099, 300'007}) {
        for (const Algorithm algorithm :
             {Algorithm::hierarchical, Algorithm::sra, Algorithm::one_shot, Algorithm::ring}) {
          expect_same_bits(comm, count, {.algorithm = algorithm});
        }
        expect_same_bits(comm, count, {.op = ReduceOp::avg, .algorithm = Algorithm::hierarchical});
        expect_same_bits(comm, count, {.op = ReduceOp::max, .algorithm = Algorithm::hierarchical});
        expect_same_bits(comm, count, {.compression = minmax({.bits = 8}), .algorithm = Algorithm::hierarchical});
      }
    });
  }
}

TEST(SharedHosts, a_group_on_one_of_the_hosts_and_one_across_them_reduce_theirs) {
  const Hosts hosts("2x3");
  expect_success(6, [](Communicator& comm) {
    auto host = comm.split(comm.rank() / 3);
    expect_same_bits(*host, 100'003, {.algorithm = Algorithm::sra});
    auto across = comm.split(comm.rank() % 3 == 2 ? -1 : 0);
    if (across) expect_same_bits(*across, 100'003, {.algorithm = Algorithm::hierarchical});
  });
}

// The payload bytes that this rank sends in an all_reduce of `data`.
std::uint64_t sent_for(Communicator& comm, std::span<float> data) {
  const auto before = comm.traffic().payload_bytes_sent;
  comm.all_reduce(data, {.algorithm = Algorithm::hierarchical});
  return comm.traffic().payload_bytes_sent - before;
}

TEST(SharedHosts, nothing_is_sent_inside_a_host) {
  const Hosts hosts("2x2");
  expect_success(4, [](Communicator& comm) {
    constexpr std::size_t kCount = 1 << 20;
    auto buffer = comm.allocate<float>(kCount);
    std::vector<float> own(kCount);
    const std::uint64_t all = sent_for(comm, own);
    const std::uint64_t across = sent_for(comm, std::span<float>(buffer));
    // A host sends its sums of half the data and receives as much; each of its ranks carries a quarter of both.
    EXPECT_EQ(across, kCount * sizeof(float) / 2);
    EXPECT_EQ(all, across + kCount * sizeof(float));
  });
}

TEST(SharedHosts, where_no_two_ranks_share_a_host_memory_is_ordinary) {
  const Hosts hosts("3x1");
  expect_success(3, [](Communicator& comm) { expect_same_bits(comm, 10'007, {}); });
}

}  // namespace
}  // namespace qccl::testing
