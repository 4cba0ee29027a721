// Wrong calls, failures of others, and the sentences that ncclGetLastError() has for them.
#include <cstdlib>
#include <latch>

#include "nccl/memory.h"

namespace qccl::testing {
namespace {

std::string last_error(ncclComm_t comm = nullptr) { return ncclGetLastError(comm); }

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

#define EXPECT_REFUSED(call, result, words)                                                  \
  do {                                                                                       \
    EXPECT_EQ((call), result) << #call;                                                      \
    EXPECT_NE(last_error().find(words), std::string::npos) << #call << ": " << last_error(); \
  } while (false)

TEST(Errors, of_handles) {
  int value = 1;
  ncclResult_t state{};
  EXPECT_REFUSED(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, nullptr, nullptr), ncclInvalidArgument, "null");
  EXPECT_REFUSED(ncclCommCount(nullptr, &value), ncclInvalidArgument, "null");
  EXPECT_REFUSED(ncclCommGetAsyncError(nullptr, &state), ncclInvalidArgument, "null");
  EXPECT_NCCL(ncclCommDestroy(nullptr));
  EXPECT_NCCL(ncclCommAbort(nullptr));
  const auto comms = make_all(1);
  EXPECT_REFUSED(ncclCommCount(comms[0], nullptr), ncclInvalidArgument, "null pointer");
  destroy_all(comms);
  EXPECT_REFUSED(ncclCommCount(comms[0], &value), ncclInvalidArgument, "destroyed");
}

TEST(Errors, of_ids_and_ranks) {
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = make_id();
  EXPECT_REFUSED(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclInvalidArgument, "unique id");
  EXPECT_REFUSED(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank 2 of 2");
  EXPECT_REFUSED(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "rank 0 of 0");
  EXPECT_REFUSED(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "null");
  EXPECT_REFUSED(ncclGetUniqueId(nullptr), ncclInvalidArgument, "null");
  ncclConfig_t config{};
  EXPECT_REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config = make_config(7);
  EXPECT_REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "blocking is 7");
  EXPECT_EQ(comm, nullptr);
}

TEST(Errors, of_calls) {
  const auto comms = make_all(1);
  const ncclComm_t comm = comms[0];
  int value = 1;
  const auto type = static_cast<ncclDataType_t>(12);
  const auto op = static_cast<ncclRedOp_t>(77);
  EXPECT_REFUSED(ncclAllReduce(&value, &value, 1, type, ncclSum, comm, nullptr), ncclInvalidArgument, "type 12");
  EXPECT_REFUSED(ncclAllReduce(&value, &value, 1, ncclInt32, op, comm, nullptr), ncclInvalidArgument, "77");
  EXPECT_REFUSED(ncclAllReduce(&value, &value, 1, ncclInt32, ncclAvg, comm, nullptr), ncclInvalidUsage, "avg of int32");
  EXPECT_REFUSED(ncclAllReduce(nullptr, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument, "null");
  EXPECT_REFUSED(ncclBroadcast(&value, &value, 1, ncclInt32, 1, comm, nullptr), ncclInvalidArgument, "root 1");
  EXPECT_REFUSED(ncclBroadcast(&value, &value, 1, ncclInt32, -1, comm, nullptr), ncclInvalidArgument, "root -1");
  EXPECT_REFUSED(ncclSend(&value, 1, ncclInt32, 1, comm, nullptr), ncclInvalidArgument, "peer 1");
  EXPECT_REFUSED(ncclRecv(nullptr, 1, ncclInt32, 0, comm, nullptr), ncclInvalidArgument, "null");
  EXPECT_REFUSED(ncclCommRevoke(comm, 1), ncclInvalidArgument, "flags 1");
  ncclRedOp_t made{};
  EXPECT_REFUSED(ncclRedOpCreatePreMulSum(&made, &value, ncclInt32, ncclScalarHostImmediate, comm), ncclInvalidUsage,
                 "int32");
  // None of them harmed it.
  EXPECT_EQ(state_of(comm), ncclSuccess);
  EXPECT_EQ(last_error(comm), last_error());
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
  destroy_all(comms);
}

class ErrorsOfDevices : public NeedsDevices {};

TEST_F(ErrorsOfDevices, of_memory_and_streams) {
  const auto comms = make_all(1);
  CUstream_st* const stream = fake::make_stream();
  void* const device = fake::allocate(fake::Kind::device, 64, 0);
  void* const managed = fake::allocate(fake::Kind::managed, 64, 0);
  std::vector<float> host(16);
  const auto add = [&](const void* input, void* output) {
    return ncclAllReduce(input, output, 16, ncclFloat32, ncclSum, comms[0], stream);
  };
  EXPECT_REFUSED(add(device, host.data()), ncclInvalidArgument, "output");
  EXPECT_REFUSED(add(managed, managed), ncclInvalidArgument, "managed");
  fake::capture(stream, true);
  EXPECT_REFUSED(add(device, device), ncclInvalidUsage, "graph");
  fake::capture(stream, false);
  fake::write(stream, device, host.data(), 64);
  EXPECT_NCCL(add(device, device));
  destroy_all(comms);
  fake::free(device);
  fake::free(managed);
  fake::destroy(stream);
}

TEST(Errors, of_functions_that_are_not_served_name_them) {
  const auto comms = make_all(1);
  const ncclComm_t comm = comms[0];
  std::uint64_t statistic = 0;
  ncclWindow_t window = nullptr;
  void* memory = nullptr;
  ncclSimInfo_t info{};
  EXPECT_REFUSED(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "ncclGroupSimulateEnd()");
  EXPECT_REFUSED(ncclCommMemStats(comm, 0, &statistic), ncclInvalidUsage, "ncclCommMemStats()");
  EXPECT_REFUSED(ncclCommSuspend(comm, 1), ncclInvalidUsage, "ncclCommSuspend()");
  EXPECT_REFUSED(ncclCommResume(comm), ncclInvalidUsage, "ncclCommResume()");
  EXPECT_REFUSED(ncclCommWindowRegister(comm, memory, 8, &window, 0), ncclInvalidUsage, "ncclCommWindowRegister()");
  EXPECT_REFUSED(ncclCommWindowDeregister(comm, window), ncclInvalidUsage, "ncclCommWindowDeregister()");
  EXPECT_REFUSED(ncclWinGetUserPtr(comm, window, &memory), ncclInvalidUsage, "ncclWinGetUserPtr()");
  EXPECT_REFUSED(ncclDevCommCreate(comm, nullptr, nullptr), ncclInvalidUsage, "ncclDevCommCreate()");
  EXPECT_REFUSED(ncclDevCommDestroy(comm, nullptr), ncclInvalidUsage, "ncclDevCommDestroy()");
  EXPECT_REFUSED(ncclGetLsaMultimemDevicePointer(window, 0, &memory), ncclInvalidUsage, "Multimem");
  EXPECT_REFUSED(ncclGetPeerDevicePointer(window, 0, 0, &memory), ncclInvalidUsage, "ncclGetPeerDevicePointer()");
  EXPECT_REFUSED(ncclPutSignal(memory, 0, ncclInt8, 0, window, 0, 0, 0, 0, comm, nullptr), ncclInvalidUsage,
                 "ncclPutSignal()");
  EXPECT_REFUSED(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage, "ncclSignal()");
  EXPECT_REFUSED(ncclWaitSignal(0, nullptr, comm, nullptr), ncclInvalidUsage, "ncclWaitSignal()");
  destroy_all(comms);
}

TEST(Errors, of_ranks_that_make_different_calls_name_both) {
  run_ranks_as_threads(2, [](ncclComm_t comm, int rank) {
    std::vector<float> values(1000);
    const std::size_t count = rank == 0 ? 1000 : 999;
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    EXPECT_NE(last_error(comm).find("1000"), std::string::npos) << last_error(comm);
    EXPECT_NE(last_error(comm).find("999"), std::string::npos) << last_error(comm);
    EXPECT_EQ(state_of(comm), ncclInvalidUsage);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidUsage);
  });
}

// The call has returned long before it fails.
TEST_F(ErrorsOfDevices, of_a_call_that_a_stream_waits_for_are_there_when_the_stream_goes_on) {
  ::setenv("QCCL_TIMEOUT", "0.3", 1);
  std::latch has_ended(1);
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    if (rank == 1) return has_ended.wait();
    Side side(Where::device);
    int* const value = side.make(std::vector<int>{1});
    EXPECT_NCCL(ncclRecv(value, 1, ncclInt32, 1, comm, side.stream()));
    EXPECT_EQ(side.read(value, 1), std::vector<int>{-1});
    EXPECT_EQ(state_of(comm), ncclSystemError);
    EXPECT_NE(last_error(comm).find("deadline"), std::string::npos) << last_error(comm);
    EXPECT_EQ(ncclSend(value, 1, ncclInt32, 1, comm, side.stream()), ncclSystemError);
    has_ended.count_down();
  });
  ::unsetenv("QCCL_TIMEOUT");
}

TEST(Errors, a_deadline_is_a_system_error_that_names_the_rank) {
  ::setenv("QCCL_TIMEOUT", "0.3", 1);
  std::latch has_ended(1);
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    if (rank == 0) {
      int value = 1;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclSystemError);
      EXPECT_NE(last_error(comm).find("rank 1"), std::string::npos) << last_error(comm);
      EXPECT_EQ(state_of(comm), ncclSystemError);
      has_ended.count_down();
    } else {
      has_ended.wait();  // alive, and without a call
    }
  });
  ::unsetenv("QCCL_TIMEOUT");
}

TEST(Errors, missing_ranks_fail_the_making_and_leave_no_handle) {
  ::setenv("QCCL_INIT_TIMEOUT", "0.3", 1);
  const ncclUniqueId id = make_id();
  auto* comm = reinterpret_cast<ncclComm_t>(8);
  EXPECT_REFUSED(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError, "rank 1");
  EXPECT_EQ(comm, nullptr);
  ::unsetenv("QCCL_INIT_TIMEOUT");
}

TEST(Errors, have_a_text_each) {
  for (int result = ncclSuccess; result <= ncclInProgress; ++result) {
    EXPECT_STRNE(ncclGetErrorString(static_cast<ncclResult_t>(result)), "");
  }
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(99)), "unknown result code");
}

}  // namespace
}  // namespace qccl::testing
