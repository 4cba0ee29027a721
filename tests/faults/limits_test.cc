// Ranks whose process has limits on file size or memory.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "faults/job.h"

namespace qccl::testing {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Limits this process for the rest of its life.
void limit(int resource, std::size_t bytes) {
  const rlimit low{bytes, bytes};
  ASSERT_EQ(::setrlimit(static_cast<__rlimit_resource>(resource), &low), 0);
}

std::size_t address_space_in_use() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void expect_right_sum(Communicator& comm, std::span<float> values) {
  std::fill(values.begin(), values.end(), 1.0F);
  comm.all_reduce(values);
  EXPECT_EQ(values.front(), static_cast<float>(comm.size()));
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

void expect_right_sum(Communicator& comm) {
  std::vector<float> values(100'000);
  expect_right_sum(comm, values);
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(FileSizeLimit, that_holds_the_rings_leaves_shared_memory_and_a_smaller_heap) {
  run_ranks({.world = 2}, [](Rank& rank) {
    limit(RLIMIT_FSIZE, 32 * kMiB);
    Communicator comm = rank.init();
    EXPECT_TRUE(contains(comm.describe(), "shm to rank")) << comm.describe();
    expect_right_sum(comm);
    for (const std::size_t bytes : {4 * kMiB, 64 * kMiB}) {
      auto buffer = comm.allocate<float>(bytes / sizeof(float));
      const auto before = comm.traffic().payload_bytes_sent;
      expect_right_sum(comm, buffer);
      EXPECT_EQ(comm.traffic().payload_bytes_sent == before, bytes < 32 * kMiB) << "larger is ordinary memory";
    }
  });
}

TEST(FileSizeLimit, of_all_ranks_that_does_not_hold_the_rings_leaves_tcp_with_one_warning_each) {
  for (const std::size_t bytes : {std::size_t{0}, 4 * kMiB}) {
    const JobOptions options{.world = 3, .environment = {{"QCCL_LOG", "warning"}}};
    const Report report = run_ranks(options, [bytes](Rank& rank) {
      limit(RLIMIT_FSIZE, bytes);
      Communicator comm = rank.init();
      EXPECT_TRUE(contains(comm.describe(), "tcp to ranks")) << comm.describe();
      expect_right_sum(comm);
      auto buffer = comm.allocate<float>(1000);
      expect_right_sum(comm, buffer);
    });
    for (const RankReport& rank : report.ranks) {
      EXPECT_EQ(count_of("no shared memory with ranks", rank.output), 1u) << rank.output;
    }
    EXPECT_TRUE(contains(report.ranks[0].output, "ulimit -f unlimited")) << report.ranks[0].output;
  }
}

TEST(FileSizeLimit, of_one_rank_leaves_tcp_between_it_and_the_others) {
  for (const int limited : {0, 2}) {
    run_ranks({.world = 3}, [limited](Rank& rank) {
      if (rank.rank() == limited) limit(RLIMIT_FSIZE, 0);
      Communicator comm = rank.init();
      EXPECT_EQ(contains(comm.describe(), "shm"), rank.rank() != limited) << comm.describe();
      expect_right_sum(comm);
    });
  }
}

TEST(FileSizeLimit, is_an_error_with_a_remedy_where_only_shared_memory_is_allowed) {
  run_ranks({.world = 2, .transport = TransportChoice::shm}, [](Rank& rank) {
    limit(RLIMIT_FSIZE, 4 * kMiB);
    const ErrorInfo failure = failure_of(rank, [&] { rank.init(); });
    EXPECT_EQ(failure.kind, ErrorKind::resource_exhausted) << failure.message;
    const bool makes_the_rings = rank.rank() == 0;
    EXPECT_TRUE(contains(failure.message, makes_the_rings ? "ulimit -f unlimited" : "rank 0 refused"))
        << failure.message;
  });
}

TEST(MemoryLimit, of_one_rank_fails_a_shared_buffer_on_all_and_leaves_the_group_usable) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end a process that has no memory left";
#endif
  run_ranks({.world = 3, .transport = TransportChoice::tcp}, [](Rank& rank) {
    Communicator comm = rank.init();
    expect_right_sum(comm);
    if (rank.rank() == 1) limit(RLIMIT_AS, address_space_in_use() + 64 * kMiB);
    const ErrorInfo failure = failure_of(rank, [&] { comm.allocate<float>(256 * kMiB / sizeof(float)); });
    EXPECT_EQ(failure.kind, ErrorKind::resource_exhausted) << failure.message;
    EXPECT_TRUE(contains(failure.message, "rank 1 can't get 268435456 bytes")) << failure.message;
    expect_right_sum(comm);
  });
}

}  // namespace
}  // namespace qccl::testing
