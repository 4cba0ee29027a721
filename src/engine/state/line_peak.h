// The most that this rank's line to distant peers has carried one way: what it carries, if it was ever full.
//
// A line to slow peers is never full while they hold back, so what it carries on average says nothing of it; what it
// carried at most in some calls does. That is the least of three windows in a row, because bytes that were held up come
// together afterwards, and it is forgotten slowly, because lines may become slower.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace qccl::engine {

// One thread.
class LinePeak {
 public:
  static constexpr std::uint64_t kLeastBytes = 16 * 1024;  // of a window that counts: heartbeats are fewer
  static constexpr double kForgets = 0.001;                // of the peak, with each window
  static constexpr int kEnough = 8;                        // windows before the peak is known

  // `bytes` since the start. A window ends with the first sample that is `window` after its begin.
  void sample(std::uint64_t bytes, TimePoint now, Nanoseconds window) {
    const bool goes_on = begin_ != TimePoint{} && bytes >= bytes_;
    if (goes_on && now - begin_ < window) return;
    if (goes_on) count(bytes - bytes_, now - begin_);
    begin_ = now;
    bytes_ = bytes;
  }

  // Bytes a second; 0 if too little has passed.
  double rate() const { return windows_ < kEnough ? 0 : peak_; }

 private:
  void count(std::uint64_t bytes, Nanoseconds time) {
    const double rate = static_cast<double>(bytes) / std::chrono::duration<double>(time).count();
    if (bytes >= kLeastBytes) {
      peak_ = std::max(std::min({rate, last_, before_last_}), (1 - kForgets) * peak_);
      windows_ = std::min(windows_ + 1, kEnough);
    }
    before_last_ = std::exchange(last_, rate);
  }

  TimePoint begin_{};
  std::uint64_t bytes_ = 0;  // at the begin
  double last_ = 0;          // rate of the window before, and of the one before that
  double before_last_ = 0;
  int windows_ = 0;
  double peak_ = 0;
};

}  // namespace qccl::engine
