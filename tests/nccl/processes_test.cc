// Ranks in several processes, one or two in each, one that is killed, and one that leaves while streams wait for calls.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "nccl/memory.h"
#include "qccl/testing.h"

namespace qccl::testing {
namespace {

// The first process makes the id, and the others get it through the test's store.
ncclUniqueId share_id(Rank& process) {
  const auto store = process.options().store;
  ncclUniqueId id{};
  if (process.rank() == 0) {
    id = make_id();
    store->set("id", std::string(id.internal, sizeof(id.internal)));
  } else {
    const auto bytes = store->get("id", Milliseconds(20'000));
    if (!bytes) throw std::runtime_error("no id");
    std::memcpy(id.internal, bytes->data(), sizeof(id.internal));
  }
  return id;
}

void expect_sums(const ncclUniqueId& id, int world, int rank, Where where) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, world, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
  {
    Side side(where, rank % 2);
    for (const std::size_t count : {1u, 5000u, 400'000u}) {
      float* const buffer = side.make(std::vector<float>(count, static_cast<float>(rank + 1)));
      EXPECT_NCCL(ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_EQ(side.read(buffer, count), std::vector<float>(count, static_cast<float>(world * (world + 1) / 2)));
    }
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

class Processes : public ::testing::TestWithParam<Where> {};
INSTANTIATE_TEST_SUITE_P(All, Processes, kHostAndDevice, memory_name);

TEST_P(Processes, four_of_one_rank) {
  run_ranks({.world = 4}, [](Rank& process) { expect_sums(share_id(process), 4, process.rank(), GetParam()); });
}

TEST_P(Processes, two_of_two_ranks) {
  run_ranks({.world = 2}, [](Rank& process) {
    const ncclUniqueId id = share_id(process);
    run_threads(2, [&](int thread) { expect_sums(id, 4, 2 * process.rank() + thread, GetParam()); });
  });
}

// Three processes make a communicator, and rank 2 is killed; the others `use` it.
void with_a_lost_process(const std::function<void(ncclComm_t comm, int rank)>& use) {
  const JobOptions job{.world = 3,
                       .faults = {{.action = Fault::Action::kill, .rank = 2, .point = "met"}},
                       .ends = {{2, killed(SIGKILL)}}};
  run_ranks(job, [&](Rank& process) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 3, share_id(process), process.rank()), ncclSuccess);
    const auto store = process.options().store;
    store->set("made by " + std::to_string(process.rank()), "");
    for (const char* const each : {"made by 0", "made by 1", "made by 2"}) {
      EXPECT_TRUE(store->get(each, Milliseconds(20'000)));
    }
    process.point("met");
    use(comm, process.rank());
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

// Leaves out rank 2.
void expect_shrunk(ncclComm_t comm, int flags) {
  int excluded[] = {2};
  ncclComm_t rest = nullptr;
  EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, flags));
  int value = 1;
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rest, nullptr));
  EXPECT_EQ(value, 2);
  EXPECT_NCCL(ncclCommDestroy(rest));
}

TEST(LostProcesses, are_a_remote_error_for_calls_and_for_those_that_only_ask) {
  with_a_lost_process([](ncclComm_t comm, int rank) {
    if (rank == 0) {
      int value = 1;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 2"), std::string::npos) << ncclGetLastError(comm);
    }
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    expect_shrunk(comm, NCCL_SHRINK_ABORT);
  });
}

TEST(LostProcesses, are_missed_by_splits_of_a_revoked_communicator_which_shrinks_without_them) {
  with_a_lost_process([](ncclComm_t comm, int rank) {
    EXPECT_NCCL(ncclCommRevoke(comm, 0));
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &part, nullptr), ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("lost 1 of its 3"), std::string::npos)
        << ncclGetLastError(nullptr);
    expect_shrunk(comm, NCCL_SHRINK_DEFAULT);
  });
}

struct Way {
  const char* name;
  void (*leave)();
  End end;
};

class LeavingProcesses : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { need_devices(); }
};
INSTANTIATE_TEST_SUITE_P(All, LeavingProcesses,
                         ::testing::Values(Way{"exit", [] { std::exit(3); }, exited(3)},
                                           Way{"at_once", [] { ::_exit(3); }, exited(3)},
                                           Way{"quick_exit", [] { std::quick_exit(3); }, exited(3)},
                                           Way{"killed", [] { std::raise(SIGKILL); }, killed(SIGKILL)}),
                         [](const auto& info) { return info.param.name; });

TEST_P(LeavingProcesses, end_at_once_and_let_the_streams_of_the_others_go_on) {
  const Way& way = GetParam();
  run_ranks({.world = 2, .ends = {{1, way.end}}}, [&](Rank& process) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, share_id(process), process.rank()), ncclSuccess);
    const auto store = process.options().store;
    Side side(Where::device, process.rank());
    constexpr std::size_t kCount = 5000;
    std::uint8_t* const buffer = side.make(std::vector<std::uint8_t>(kCount, 1));
    EXPECT_NCCL(ncclRecv(buffer, kCount, ncclUint8, 1 - process.rank(), comm, side.stream()));
    if (process.rank() == 1) {
      EXPECT_TRUE(store->get("rank 0's stream waits", Milliseconds(20'000)));
      way.leave();
    }
    store->set("rank 0's stream waits", "");
    const auto received = side.read(buffer, kCount);
    EXPECT_TRUE(received[0] == 0xFF || received[0] == 1);  // 1 if the library had not yet seen that the stream is there
    EXPECT_EQ(received, std::vector<std::uint8_t>(kCount, received[0]));
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace qccl::testing
