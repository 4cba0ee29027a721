// Tests that run over real shared memory and over TCP, ranks as threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "support/thread_job.h"

namespace qccl::testing {

class Transports : public ::testing::TestWithParam<TransportChoice> {
 protected:
  ThreadJobOptions options() const {
    ThreadJobOptions options;
    options.transport = GetParam();
    return options;
  }
  void expect_success(int world, const std::function<void(Communicator&)>& body) {
    const auto failures = run_threads(world, options(), body);
    for (std::size_t rank = 0; rank < failures.size(); ++rank) {
      EXPECT_EQ(failures[rank], "") << "rank " << rank << " of " << world;
    }
  }
};

inline std::string transport_name(const ::testing::TestParamInfo<TransportChoice>& info) {
  return info.param == TransportChoice::shm ? "shm" : "tcp";
}

}  // namespace qccl::testing
