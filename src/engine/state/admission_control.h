#pragma once

#include <cstddef>
#include <cstdint>

#include "base/log.h"

namespace qccl::engine {

// Decides which of a group's long collectives run and which wait. Ranks post a group's collectives in one order, so the
// oldest unfinished one runs everywhere and no wait is endless.
//
// A few run at a time, because calls under way share the caches: eight calls of 4 or 16 MiB by 4 ranks on 2 cores, over
// loopback TCP, took 1.3 to 1.8 times as long all at once as in turns.
class AdmissionControl {
 public:
  // Shorter calls begin at once, and keep no longer one waiting.
  static constexpr std::uint64_t kLongBytes = std::uint64_t{256} << 10;
  // Long calls run together up to this size, which covers the end of one and the beginning of the next. A longer one
  // runs alone.
  static constexpr std::uint64_t kRunningBytes = std::uint64_t{8} << 20;

  // A long call was posted: true if it begins at once, else it waits in order.
  bool post(std::uint64_t bytes) {
    if (waiting_ == 0 && has_room(bytes)) {
      running_ += bytes;
      return true;
    }
    ++waiting_;
    return false;
  }
  // A long call that had begun has ended.
  void end(std::uint64_t bytes) {
    QCCL_CHECK(bytes <= running_);
    running_ -= bytes;
  }
  bool any_waits() const { return waiting_ > 0; }
  // Whether the first call that waits, of so many bytes, begins now.
  bool begin_next(std::uint64_t bytes) {
    QCCL_CHECK(waiting_ > 0);
    if (!has_room(bytes)) return false;
    --waiting_;
    running_ += bytes;
    return true;
  }

 private:
  bool has_room(std::uint64_t bytes) const { return running_ == 0 || running_ + bytes <= kRunningBytes; }

  std::uint64_t running_ = 0;
  std::size_t waiting_ = 0;
};

}  // namespace qccl::engine
