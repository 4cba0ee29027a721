// How communicators are made, what they say of themselves, and how they end.
#include <atomic>
#include <cstdlib>
#include <latch>

#include "nccl/memory.h"

namespace qccl::testing {
namespace {

int sum_over(ncclComm_t comm, int own) {
  EXPECT_NCCL(ncclAllReduce(&own, &own, 1, ncclInt32, ncclSum, comm, nullptr));
  return own;
}

int size_of(ncclComm_t comm) {
  int count = 0;
  EXPECT_NCCL(ncclCommCount(comm, &count));
  return count;
}

int rank_in(ncclComm_t comm) {
  int rank = -1;
  EXPECT_NCCL(ncclCommUserRank(comm, &rank));
  return rank;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

TEST(Communicators, init_all_gives_each_rank_its_device) {
  const int devices[] = {1, 0};
  ncclComm_t comms[2] = {};
  EXPECT_NCCL(ncclCommInitAll(comms, 2, devices));
  for (int rank = 0; rank < 2; ++rank) {
    int device = -1;
    EXPECT_NCCL(ncclCommCuDevice(comms[rank], &device));
    EXPECT_EQ(device, devices[rank]);
    EXPECT_EQ(rank_in(comms[rank]), rank);
    EXPECT_EQ(state_of(comms[rank]), ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(comms[rank]));
  }
}

class CommunicatorsOfDevices : public NeedsDevices {};

TEST_F(CommunicatorsOfDevices, belong_to_the_device_that_is_current_when_they_are_made) {
  for (const int current : {0, 1}) {
    const CurrentDevice device(current);
    const ncclUniqueId id = make_id();
    ncclComm_t comm = nullptr;
    int own = -1;
    EXPECT_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    EXPECT_NCCL(ncclCommCuDevice(comm, &own));
    EXPECT_EQ(own, current);
    // Pinned memory is nobody's: the stream is this device's.
    Side side(Where::pinned, current);
    int* const value = side.make(std::vector<int>(10, 7));
    int* const sum = side.make(std::vector<int>(10));
    EXPECT_NCCL(ncclAllReduce(value, sum, 10, ncclInt32, ncclSum, comm, side.stream()));
    EXPECT_EQ(side.read(sum, 10), std::vector<int>(10, 7));
    void* memory = nullptr;
    EXPECT_NCCL(ncclMemAlloc(&memory, 64));
    EXPECT_NE(fake::live_objects(), 0u);
    EXPECT_NCCL(ncclMemFree(memory));
    EXPECT_NCCL(ncclCommDestroy(comm));
  }
  EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{});
}

TEST(Communicators, several_ids_meet_at_the_first) {
  ncclUniqueId ids[] = {make_id(), make_id()};
  run_threads(3, [&](int rank) {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = make_config();
    EXPECT_NCCL(ncclCommInitRankScalable(&comm, 3, rank, 2, ids, &config));
    EXPECT_EQ(sum_over(comm, 1), 3);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

TEST(Communicators, one_thread_makes_all_ranks_of_a_job_without_blocking) {
  const ncclUniqueId id = make_id();
  ncclComm_t comms[3] = {};
  ncclConfig_t config = make_config(0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config), ncclInProgress);
  }
  for (const ncclComm_t comm : comms) {
    while (state_of(comm) == ncclInProgress) std::this_thread::yield();
    EXPECT_EQ(state_of(comm), ncclSuccess);
    EXPECT_EQ(size_of(comm), 3);
  }
  for (const ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Communicators, calls_are_refused_until_the_communicator_is_made) {
  const ncclUniqueId id = make_id();
  ncclComm_t comm = nullptr;
  ncclConfig_t config = make_config(0);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  int value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
  ncclComm_t other = nullptr;
  EXPECT_NCCL(ncclCommInitRank(&other, 2, id, 1));
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_NCCL(ncclCommDestroy(other));
}

TEST(Communicators, split_goes_by_color_and_key) {
  run_ranks_as_threads(4, [](ncclComm_t comm, int rank) {
    ncclComm_t half = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm, rank / 2, 10 - rank, &half, nullptr));
    EXPECT_EQ(size_of(half), 2);
    EXPECT_EQ(rank_in(half), 1 - rank % 2);
    EXPECT_EQ(sum_over(half, rank), rank / 2 == 0 ? 1 : 5);
    ncclComm_t none = comm;
    ncclComm_t three = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, 0, rank == 1 ? &none : &three, nullptr));
    if (rank == 1) EXPECT_EQ(none, nullptr);
    if (rank != 1) EXPECT_EQ(sum_over(three, 1), 3);
    EXPECT_NCCL(ncclCommDestroy(half));
    if (three != nullptr) EXPECT_NCCL(ncclCommDestroy(three));
    EXPECT_EQ(sum_over(comm, 1), 4);
  });
}

TEST(Communicators, shrink_leaves_ranks_out_and_its_parent_as_it_is) {
  run_ranks_as_threads(4, [](ncclComm_t comm, int rank) {
    int excluded[] = {2};
    ncclComm_t rest = nullptr;
    if (rank == 2) {
      EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    } else {
      EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
      EXPECT_EQ(size_of(rest), 3);
      EXPECT_EQ(rank_in(rest), rank == 3 ? 2 : rank);
      EXPECT_EQ(sum_over(rest, rank), 4);
      EXPECT_NCCL(ncclCommDestroy(rest));
    }
    EXPECT_EQ(sum_over(comm, 1), 4);
  });
}

// A sum of rank 0 that waits for the other ranks until it is ended. Its message to rank 1 over `other` says that it has
// been posted.
std::thread start_sum_to_be_ended(ncclComm_t comm, ncclComm_t other) {
  return std::thread([=] {
    int own = 1;
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclAllReduce(&own, &own, 1, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_NCCL(ncclSend(&own, 1, ncclInt32, 1, other, nullptr));
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  });
}

TEST(Communicators, shrink_with_abort_ends_what_the_ranks_wait_for) {
  const ncclUniqueId other_id = make_id();
  run_ranks_as_threads(4, [&](ncclComm_t comm, int rank) {
    ncclComm_t other = nullptr;
    EXPECT_NCCL(ncclCommInitRank(&other, 4, other_id, rank));
    EXPECT_EQ(sum_over(comm, 1), 4);
    std::thread caller;
    int value = 0;
    if (rank == 0) caller = start_sum_to_be_ended(comm, other);
    if (rank == 1) EXPECT_NCCL(ncclRecv(&value, 1, ncclInt32, 0, other, nullptr));
    EXPECT_EQ(sum_over(other, 1), 4);
    if (rank < 3) {
      int excluded[] = {3};
      ncclComm_t rest = nullptr;
      EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
      EXPECT_EQ(sum_over(rest, 1), 3);
      EXPECT_NCCL(ncclCommDestroy(rest));
    }
    if (caller.joinable()) caller.join();
    EXPECT_NCCL(ncclCommDestroy(other));
  });
}

TEST(Communicators, grow_takes_new_ranks_behind_the_old_ones) {
  const ncclUniqueId first = make_id();
  ncclUniqueId second{};
  std::atomic<bool> has_second{false};
  run_threads(4, [&](int rank) {
    ncclComm_t comm = nullptr;
    ncclComm_t grown = nullptr;
    if (rank < 2) {
      EXPECT_NCCL(ncclCommInitRank(&comm, 2, first, rank));
      if (rank == 1) {
        EXPECT_NCCL(ncclCommGetUniqueId(comm, &second));
        has_second = true;
      }
      EXPECT_NCCL(ncclCommGrow(comm, 4, rank == 1 ? &second : nullptr, -1, &grown, nullptr));
    } else {
      while (!has_second) std::this_thread::yield();
      EXPECT_NCCL(ncclCommGrow(nullptr, 4, &second, rank, &grown, nullptr));
    }
    EXPECT_EQ(rank_in(grown), rank);
    EXPECT_EQ(sum_over(grown, 1), 4);
    if (comm != nullptr) EXPECT_EQ(sum_over(comm, 1), 2);
    if (comm != nullptr) EXPECT_NCCL(ncclCommDestroy(comm));
    EXPECT_NCCL(ncclCommDestroy(grown));
  });
}

TEST(Communicators, a_finalized_communicator_takes_no_calls_and_is_destroyed_once) {
  run_ranks_as_threads(2, [](ncclComm_t& comm, int rank) {
    EXPECT_EQ(sum_over(comm, rank), 1);
    EXPECT_NCCL(ncclCommFinalize(comm));
    EXPECT_EQ(state_of(comm), ncclSuccess);
    EXPECT_EQ(size_of(comm), 2);
    EXPECT_EQ(rank_in(comm), rank);
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    EXPECT_NCCL(ncclCommDestroy(comm));
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
    comm = nullptr;
  });
}

// Rank 0 of communicators that do not block is finalized while its stream waits for a message of rank 1.
class FinalizedWithoutBlocking : public ::testing::Test {
 protected:
  void SetUp() override {
    need_devices();
    if (IsSkipped()) return;
    ::setenv("QCCL_TIMEOUT", "5", 1);
    const ncclUniqueId id = make_id();
    ncclConfig_t config = make_config(0);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ncclCommInitRankConfig(&comms_[rank], 2, id, rank, &config), ncclInProgress);
    }
    for (const ncclComm_t comm : comms_) wait_for(comm);
    EXPECT_NCCL(ncclRecv(value_, 1, ncclInt32, 1, comms_[0], side_.stream()));
    EXPECT_EQ(ncclCommFinalize(comms_[0]), ncclInProgress);
    EXPECT_EQ(state_of(comms_[0]), ncclInProgress);
  }
  ~FinalizedWithoutBlocking() override { ::unsetenv("QCCL_TIMEOUT"); }

  static void wait_for(ncclComm_t comm) {
    while (state_of(comm) == ncclInProgress) std::this_thread::yield();
    EXPECT_EQ(state_of(comm), ncclSuccess);
  }

  ncclComm_t comms_[2] = {};
  Side side_{Where::device};
  int* value_ = side_.make(std::vector<int>{0});
};

TEST_F(FinalizedWithoutBlocking, communicators_are_in_progress_until_their_calls_have_ended) {
  EXPECT_EQ(ncclCommFinalize(comms_[0]), ncclInvalidUsage);
  EXPECT_EQ(size_of(comms_[0]), 2);
  int sent = 7;
  EXPECT_NCCL(ncclSend(&sent, 1, ncclInt32, 0, comms_[1], nullptr));
  wait_for(comms_[0]);
  EXPECT_EQ(side_.read(value_, 1), std::vector<int>{7});
  EXPECT_NCCL(ncclCommDestroy(comms_[0]));
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclCommFinalize(comms_[1]));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  wait_for(comms_[1]);
  EXPECT_NCCL(ncclCommDestroy(comms_[1]));
}

TEST_F(FinalizedWithoutBlocking, communicators_are_destroyed_when_their_calls_have_ended) {
  int sent = 7;
  EXPECT_NCCL(ncclSend(&sent, 1, ncclInt32, 0, comms_[1], nullptr));
  EXPECT_NCCL(ncclCommDestroy(comms_[0]));
  EXPECT_EQ(side_.read(value_, 1), std::vector<int>{7});
  EXPECT_NCCL(ncclCommDestroy(comms_[1]));
}

TEST_F(FinalizedWithoutBlocking, communicators_are_aborted_with_their_calls) {
  EXPECT_NCCL(ncclCommAbort(comms_[0]));
  int received = 0;
  EXPECT_EQ(ncclRecv(&received, 1, ncclInt32, 0, comms_[1], nullptr), ncclSystemError);
  EXPECT_NE(std::string(ncclGetLastError(comms_[1])).find("ncclCommAbort()"), std::string::npos)
      << ncclGetLastError(comms_[1]);
  EXPECT_NCCL(ncclCommDestroy(comms_[1]));
}

// Rank 0 blocks in a call that rank 1 never makes; `end` ends it from another thread.
void expect_ended(const std::function<void(ncclComm_t)>& end, ncclResult_t other_result) {
  const ncclUniqueId id = make_id();
  run_threads(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, rank));
    int value = 1;
    if (rank == 1) {
      EXPECT_NCCL(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr));  // rank 0 has posted its call
      EXPECT_NCCL(ncclSend(&value, 1, ncclInt32, 0, comm, nullptr));
      EXPECT_EQ(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr), other_result);
      EXPECT_NCCL(ncclCommDestroy(comm));
      return;
    }
    std::thread ender([&] {
      int told = 0;
      EXPECT_NCCL(ncclRecv(&told, 1, ncclInt32, 1, comm, nullptr));
      end(comm);
    });
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_NCCL(ncclSend(&value, 1, ncclInt32, 1, comm, nullptr));
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
    ender.join();
  });
}

TEST(Communicators, abort_from_another_thread_ends_calls_here_and_elsewhere) {
  expect_ended([](ncclComm_t comm) { EXPECT_NCCL(ncclCommAbort(comm)); }, ncclSystemError);
}

TEST(Communicators, revoke_ends_calls_and_leaves_the_communicator_to_be_destroyed) {
  expect_ended(
      [](ncclComm_t comm) {
        EXPECT_NCCL(ncclCommRevoke(comm, 0));
        int value = 1;
        EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
        EXPECT_NCCL(ncclCommDestroy(comm));
      },
      ncclSystemError);
}

constexpr int kRevokers = 4;

// All ranks revoke a communicator in which rank 0 waits for the others; on rank 2 a call has failed because the others
// revoked it. Then they `use` it.
void expect_usable_when_revoked(const std::function<void(ncclComm_t comm, int rank)>& use) {
  const ncclUniqueId other_id = make_id();
  run_ranks_as_threads(kRevokers, [&](ncclComm_t comm, int rank) {
    ncclComm_t other = nullptr;
    EXPECT_NCCL(ncclCommInitRank(&other, kRevokers, other_id, rank));
    EXPECT_EQ(sum_over(comm, 1), kRevokers);
    std::thread caller;
    int value = 0;
    if (rank == 0) caller = start_sum_to_be_ended(comm, other);
    if (rank == 1) EXPECT_NCCL(ncclRecv(&value, 1, ncclInt32, 0, other, nullptr));
    EXPECT_EQ(sum_over(other, 1), kRevokers);
    if (rank == 2) EXPECT_EQ(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr), ncclSystemError);
    EXPECT_NCCL(ncclCommRevoke(comm, 0));
    if (caller.joinable()) caller.join();
    EXPECT_EQ(state_of(comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    use(comm, rank);
    EXPECT_EQ(state_of(comm), ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(other));
  });
}

TEST(RevokedCommunicators, are_split_more_than_once_and_then_shrunk) {
  expect_usable_when_revoked([](ncclComm_t comm, int rank) {
    ncclComm_t half = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm, rank / 2, -rank, &half, nullptr));
    EXPECT_EQ(rank_in(half), 1 - rank % 2);
    EXPECT_EQ(sum_over(half, rank), rank / 2 == 0 ? 1 : 5);
    ncclComm_t part = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, nullptr));
    if (rank != 1) EXPECT_EQ(sum_over(part, 1), 3);
    if (part != nullptr) EXPECT_NCCL(ncclCommDestroy(part));
    int excluded[] = {0};
    ncclComm_t rest = nullptr;
    if (rank != 0) EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    if (rest != nullptr) EXPECT_EQ(rank_in(rest), rank - 1);
    if (rest != nullptr) EXPECT_EQ(sum_over(rest, rank), 6);
    if (rest != nullptr) EXPECT_NCCL(ncclCommDestroy(rest));
    EXPECT_NCCL(ncclCommDestroy(half));
  });
}

TEST(RevokedCommunicators, are_shrunk_without_flags) {
  expect_usable_when_revoked([](ncclComm_t comm, int rank) {
    if (rank == 3) return;
    int excluded[] = {3};
    ncclComm_t rest = nullptr;
    EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(sum_over(rest, rank), 3);
    EXPECT_NCCL(ncclCommDestroy(rest));
  });
}

TEST(RevokedCommunicators, grow) {
  expect_usable_when_revoked([](ncclComm_t comm, int rank) {
    const auto expect_grown = [](ncclComm_t grown, int own) {
      EXPECT_EQ(rank_in(grown), own);
      EXPECT_EQ(sum_over(grown, own), 10);
      EXPECT_NCCL(ncclCommDestroy(grown));
    };
    ncclUniqueId id{};
    std::thread newcomer;
    if (rank == 1) {
      EXPECT_NCCL(ncclCommGetUniqueId(comm, &id));
      newcomer = std::thread([&] {
        ncclComm_t grown = nullptr;
        EXPECT_NCCL(ncclCommGrow(nullptr, kRevokers + 1, &id, kRevokers, &grown, nullptr));
        expect_grown(grown, kRevokers);
      });
    }
    ncclComm_t grown = nullptr;
    EXPECT_NCCL(ncclCommGrow(comm, kRevokers + 1, rank == 1 ? &id : nullptr, -1, &grown, nullptr));
    expect_grown(grown, rank);
    if (newcomer.joinable()) newcomer.join();
  });
}

TEST(RevokedCommunicators, keep_a_failure_from_before) {
  run_ranks_as_threads(2, [](ncclComm_t comm, int rank) {
    std::vector<int> values(2);
    const auto count = static_cast<std::size_t>(rank + 1);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_NCCL(ncclCommRevoke(comm, 0));
    EXPECT_EQ(state_of(comm), ncclInvalidUsage);
  });
}

// A call that makes a communicator of one that has another rank too, which never makes the call.
struct Child {
  const char* name;
  std::function<ncclResult_t(ncclComm_t parent, ncclComm_t* made, ncclConfig_t* config)> make;
  bool keeps_parent = true;
};

ncclResult_t split_alone(ncclComm_t parent, ncclComm_t* made, ncclConfig_t* config) {
  return ncclCommSplit(parent, 0, 0, made, config);
}
ncclResult_t shrink_by_nobody(ncclComm_t parent, ncclComm_t* made, ncclConfig_t* config) {
  return ncclCommShrink(parent, nullptr, 0, made, config, NCCL_SHRINK_DEFAULT);
}
ncclResult_t shrink_with_abort(ncclComm_t parent, ncclComm_t* made, ncclConfig_t* config) {
  return ncclCommShrink(parent, nullptr, 0, made, config, NCCL_SHRINK_ABORT);
}
ncclResult_t grow_by_one(ncclComm_t parent, ncclComm_t* made, ncclConfig_t* config) {
  const ncclUniqueId id = make_id();
  return ncclCommGrow(parent, 3, &id, -1, made, config);
}

class Children : public ::testing::TestWithParam<Child> {
 protected:
  Children() { ::setenv("QCCL_TIMEOUT", "60", 1); }
  ~Children() override { ::unsetenv("QCCL_TIMEOUT"); }
};
INSTANTIATE_TEST_SUITE_P(All, Children,
                         ::testing::Values(Child{"split", split_alone}, Child{"shrink", shrink_by_nobody},
                                           Child{"shrink_with_abort", shrink_with_abort, false},
                                           Child{"grow", grow_by_one}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(Children, that_are_aborted_while_they_are_made_leave_their_parent) {
  const auto parents = make_all(2);
  ncclConfig_t config = make_config(0);
  ncclComm_t made = nullptr;
  EXPECT_EQ(GetParam().make(parents[0], &made, &config), ncclInProgress);
  EXPECT_EQ(state_of(made), ncclInProgress);
  EXPECT_NCCL(ncclCommAbort(made));
  if (GetParam().keeps_parent) {
    int values[2] = {1, 2};
    EXPECT_NCCL(ncclGroupStart());
    for (const std::size_t rank : {0u, 1u}) {
      EXPECT_NCCL(ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, parents[rank], nullptr));
    }
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(values[1], 3);
    // The other rank comes too late, and does not wait.
    EXPECT_EQ(GetParam().make(parents[1], &made, nullptr), ncclSystemError);
    EXPECT_EQ(made, nullptr);
  }
  destroy_all(parents);
}

TEST_P(Children, end_with_the_parent_that_is_aborted) {
  const auto parents = make_all(2);
  ncclConfig_t config = make_config(0);
  ncclComm_t made = nullptr;
  EXPECT_EQ(GetParam().make(parents[0], &made, &config), ncclInProgress);
  EXPECT_NCCL(ncclCommAbort(parents[0]));
  while (state_of(made) == ncclInProgress) std::this_thread::yield();
  EXPECT_EQ(state_of(made), ncclSystemError);
  EXPECT_NCCL(ncclCommDestroy(made));
  EXPECT_NCCL(ncclCommAbort(parents[1]));
}

TEST_P(Children, that_block_end_with_the_parent_that_another_thread_aborts) {
  ncclResult_t result = ncclInvalidArgument;
  for (int yields = 1; result == ncclInvalidArgument; yields *= 2) {  // aborted before the call
    const auto parents = make_all(2);
    std::latch calls(1);
    std::thread caller([&] {
      ncclComm_t made = nullptr;
      calls.count_down();
      result = GetParam().make(parents[0], &made, nullptr);
      EXPECT_EQ(made, nullptr);
    });
    calls.wait();
    for (int i = 0; i < yields; ++i) std::this_thread::yield();
    EXPECT_NCCL(ncclCommAbort(parents[0]));
    caller.join();
    EXPECT_NCCL(ncclCommAbort(parents[1]));
  }
  EXPECT_EQ(result, ncclSystemError);
}

TEST_P(Children, fail_at_the_deadline) {
  ::setenv("QCCL_TIMEOUT", "0.3", 1);
  ::setenv("QCCL_INIT_TIMEOUT", "0.3", 1);
  const auto parents = make_all(2);
  ::unsetenv("QCCL_INIT_TIMEOUT");
  ncclComm_t made = nullptr;
  EXPECT_EQ(GetParam().make(parents[0], &made, nullptr), ncclSystemError);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("rank 1"), std::string::npos) << ncclGetLastError(nullptr);
  EXPECT_EQ(made, nullptr);
  destroy_all(parents);
}

// One thread, so that a split that blocked would not end.
TEST(Communicators, splits_without_a_color_do_not_block_a_parent_that_does_not) {
  const ncclUniqueId id = make_id();
  ncclComm_t parents[2] = {};
  ncclConfig_t config = make_config(0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ncclCommInitRankConfig(&parents[rank], 2, id, rank, &config), ncclInProgress);
  }
  for (const ncclComm_t parent : parents) {
    while (state_of(parent) == ncclInProgress) std::this_thread::yield();
  }
  for (const int without : {0, 1}) {
    ncclComm_t parts[2] = {parents[0], parents[1]};
    for (int rank = 0; rank < 2; ++rank) {
      const int color = rank == without ? NCCL_SPLIT_NOCOLOR : 5;
      EXPECT_EQ(ncclCommSplit(parents[rank], color, 0, &parts[rank], nullptr), ncclInProgress);
    }
    EXPECT_EQ(parts[without], nullptr);
    ncclComm_t part = parts[1 - without];
    while (state_of(part) == ncclInProgress) std::this_thread::yield();
    EXPECT_EQ(size_of(part), 1);
    EXPECT_NCCL(ncclCommDestroy(part));
  }
  // Nobody else comes.
  ncclComm_t none = parents[0];
  EXPECT_EQ(ncclCommSplit(parents[0], NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), ncclInProgress);
  EXPECT_NCCL(ncclCommAbort(parents[0]));
  EXPECT_NCCL(ncclCommAbort(parents[1]));
}

// Each split has its own exchange: threads that make several at once do not mix them up.
TEST(Communicators, one_group_splits_a_communicator_several_times) {
  const auto parents = make_all(2);
  constexpr int kSplits = 4;
  ncclComm_t parts[kSplits][2] = {};
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    for (int split = 0; split < kSplits; ++split) {
      const int color = split % 2 == 0 ? rank : 0;
      EXPECT_NCCL(ncclCommSplit(parents[static_cast<std::size_t>(rank)], color, 0, &parts[split][rank], nullptr));
    }
  }
  EXPECT_NCCL(ncclGroupEnd());
  for (int split = 0; split < kSplits; ++split) {
    for (const ncclComm_t part : parts[split]) {
      EXPECT_EQ(size_of(part), split % 2 == 0 ? 1 : 2);
      EXPECT_NCCL(ncclCommDestroy(part));
    }
  }
  destroy_all(parents);
}

TEST(Communicators, memory_is_the_hosts_or_the_devices) {
  void* memory = nullptr;
  EXPECT_NCCL(ncclMemAlloc(&memory, 1000));
  ASSERT_NE(memory, nullptr);
  const auto comms = make_all(1);
  void* handle = nullptr;
  EXPECT_NCCL(ncclCommRegister(comms[0], memory, 1000, &handle));
  EXPECT_NCCL(ncclCommDeregister(comms[0], handle));
  destroy_all(comms);
  EXPECT_NCCL(ncclMemFree(memory));
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  EXPECT_EQ(ncclMemAlloc(&memory, 0), ncclInvalidArgument);
}

TEST(Communicators, the_version_is_a_release_of_nccl) {
  int version = 0;
  EXPECT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, 22809);
}

}  // namespace
}  // namespace qccl::testing
