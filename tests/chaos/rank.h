// A rank of the chaos test: makes sums that it can check, goes on in a smaller group after each failure, and takes in
// newcomers. It may be killed or stopped at any moment.
//
// What it tells the test, as lines on a pipe, each written at once:
//   door ADDRESS              newcomers may come there
//   joined                    it is a member
//   step NUMBER DIGEST        the step has its result; the digest is of the result and of the members
//   retried NANOSECONDS ID..  the first call after a failure has its result, without these processes
//   left out WHY              the others went on without it
//   problem WHAT              something is wrong
//   ended BEFORE AFTER        in good order; descriptors before the job and after it
#pragma once

#include <atomic>
#include <cstdint>

#include "qccl/communicator.h"

namespace qccl::testing {

struct ChaosRank {
  std::uint64_t id = 0;  // of this process; no other ever has it
  std::uint64_t seed = 0;
  InitOptions init{};
  int channel = -1;
  const std::atomic<bool>* is_over = nullptr;  // shared by all processes: members end when one of them has seen it
};

// In the rank's own process, which it ends.
[[noreturn]] void run_chaos_rank(const ChaosRank& rank);

}  // namespace qccl::testing
