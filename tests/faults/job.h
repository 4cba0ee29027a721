// Shared by the failure tests: jobs over each transport, and ranks that record how they fail.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
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

// Returns when so many ranks are here: the death of one that goes on disturbs nobody in what came before.
inline void meet(const Rank& rank, int ranks) {
  const auto store = rank.options().store;
  store->set(fmt::format("here {}", rank.rank()), "1");
  for (int each = 0; each < ranks; ++each) {
    EXPECT_TRUE(store->get(fmt::format("here {}", each), std::chrono::seconds(30))) << "rank " << each;
  }
}

// Returns the error that `calls` throw, and brings the rank to the point "failed". Fails the test if nothing is thrown.
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

// Makes sums of 4 MiB until one fails; the first brings the rank to the point "summing".
inline ErrorInfo sum_until_failure(Rank& rank, Communicator& comm) {
  std::vector<float> values(1 << 20, 1.0f);
  return failure_of(rank, [&] {
    comm.all_reduce(values);
    rank.point("summing");
    while (true) comm.all_reduce(values);
  });
}

// Runs a job that times something that should be prompt. A busy machine may delay a rank by a second, but not in each
// of five jobs.
inline void expect_within_a_second(const std::function<double()>& slowest_of_a_job) {
  double slowest = slowest_of_a_job();
  for (int again = 1; again < 5 && slowest >= 1.0 && !::testing::Test::HasFailure(); ++again) {
    slowest = slowest_of_a_job();
  }
  EXPECT_LT(slowest, 1.0) << "seconds, in every job";
}

inline double seconds_to_failure(const Report& report, std::size_t rank, Time since) {
  return std::chrono::duration<double>(report.ranks[rank].points.at("failed") - since).count();
}

inline double slowest_failure(const Report& report, std::initializer_list<std::size_t> ranks, Time since) {
  double slowest = 0;
  for (const std::size_t rank : ranks) slowest = std::max(slowest, seconds_to_failure(report, rank, since));
  return slowest;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace qccl::testing
