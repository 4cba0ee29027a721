// Ranks of NCCL's interface as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "nccl/current_device.h"

namespace qccl::testing {

// Fails the test with what ncclGetLastError() says.
#define EXPECT_NCCL(call)                                                                     \
  do {                                                                                        \
    const ncclResult_t expect_nccl_result = (call);                                           \
    EXPECT_EQ(expect_nccl_result, ncclSuccess) << #call << ": " << ncclGetLastError(nullptr); \
  } while (false)

inline ncclUniqueId make_id() {
  ncclUniqueId id{};
  EXPECT_NCCL(ncclGetUniqueId(&id));
  return id;
}

inline ncclConfig_t make_config(int blocking = NCCL_CONFIG_UNDEF_INT) {
  ncclConfig_t config{};
  config.size = sizeof(config);
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = 22809;
  config.blocking = blocking;
  return config;
}

// Calls `body` in a thread for each rank and joins them.
inline void run_threads(int world, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (std::thread& each : threads) each.join();
}

// The same, each rank on a device of its own, as NCCL demands: streams of two ranks on one could share a queue, where
// one that waits for the other rank holds up that one's. With a communicator of all of them, which is destroyed
// afterwards unless `body` made it null.
inline void run_ranks_as_threads(int world, const std::function<void(ncclComm_t& comm, int rank)>& body) {
  const ncclUniqueId id = make_id();
  device::fake::set_device_count(device::fake::kMostDevices);
  run_threads(world, [&](int rank) {
    const CurrentDevice device(rank);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, world, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
    body(comm, rank);
    if (comm != nullptr) EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

// The communicators of one thread, on devices 0 and 1 in turn.
inline std::vector<ncclComm_t> make_all(int world) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(world));
  std::vector<int> devices;
  for (int rank = 0; rank < world; ++rank) devices.push_back(rank % 2);
  EXPECT_NCCL(ncclCommInitAll(comms.data(), world, devices.data()));
  return comms;
}
inline void destroy_all(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t each : comms) EXPECT_NCCL(ncclCommDestroy(each));
}

}  // namespace qccl::testing
