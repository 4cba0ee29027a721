// What tests of failures have in common: jobs over each transport, and ranks that note how they fail.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "qccl/testing.h"

namespace qccl::testing {

class Transports : public ::testing::TestWithParam<TransportChoice> {
 protected:
  JobOptions job(int world) const { return {.world = world, .transport = GetParam()}; }
};

inline std::string transport_name(const ::testing::TestParamInfo<TransportChoice>& info) {
  return info.param == TransportChoice::shm ? "shm" : "tcp";
}

inline auto both_transports() { return ::testing::Values(TransportChoice::shm, TransportChoice::tcp); }

// What `calls` throw, at the point "failed". No error at all fails the test.
inline ErrorInfo failure_of(Rank& rank, const std::function<void()>& calls) {
  try {
    calls();
  } catch (const Error& error) {
    rank.point("failed");
    return error.info();
  }
  ADD_FAILURE() << "rank " << rank.rank() << " has not failed";
  return {};
}

// Sums of 4 MiB until one fails; the first brings the rank to the point "summing".
inline ErrorInfo sum_until_failure(Rank& rank, Communicator& comm, const CallOptions& options = {}) {
  std::vector<float> values(1 << 20, 1.0f);
  return failure_of(rank, [&] {
    comm.all_reduce(values, options);
    rank.point("summing");
    while (true) comm.all_reduce(values, options);
  });
}

inline double seconds_to_failure(const Report& report, std::size_t rank, Time since) {
  return std::chrono::duration<double>(report.ranks[rank].points.at("failed") - since).count();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace qccl::testing
