// For tests that can be made to run for hours: numbers from the environment (how many programs, which seed), and
// progress.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/options.h"

namespace qccl::testing {

inline std::uint64_t environment_number(const char* variable, std::uint64_t otherwise) {
  return std::stoull(environment(variable).value_or(std::to_string(otherwise)));
}

// Prints every 10 seconds how many programs of a loop have run.
class Progress {
 public:
  explicit Progress(std::uint64_t programs) : programs_(programs) {}

  void count_one() {
    ++run_;
    const clock::time_point now = clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(10);
    fmt::print(stderr, "{} of {} programs have run, {} s\n", run_, programs_,
               std::chrono::duration_cast<std::chrono::seconds>(now - start_).count());
  }

 private:
  using clock = std::chrono::steady_clock;
  const std::uint64_t programs_;
  const clock::time_point start_ = clock::now();
  clock::time_point next_ = start_ + std::chrono::seconds(10);
  std::uint64_t run_ = 0;
};

}  // namespace qccl::testing
