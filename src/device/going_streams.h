// Streams of the library that have to go on while streams of the program wait at gates. A driver deals streams to a few
// queues, and a stream that waits holds up all others of its queue, so each stream is tried before it waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "device/device.h"

namespace qccl::device {

// A stream that has to go on as long as this lives. All contexts of the process know of it: they share the devices'
// queues. Waits for a trial that is under way. The stream outlives it.
class GoingStream {
 public:
  GoingStream(const Device& device, Stream& stream);
  ~GoingStream();
  GoingStream(const GoingStream&) = delete;
  GoingStream& operator=(const GoingStream&) = delete;

  // How many have come so far, to any device.
  static std::uint64_t come();

 private:
  Stream& stream_;
};

// Those of one device, in all contexts of the process. While it lives, none comes or goes, and no other trial is made.
class GoingStreams {
 public:
  static constexpr std::size_t kMost = 64;  // that are tried

  explicit GoingStreams(const Device& device);

  // By the place that each keeps while it lives; null: none is there.
  const std::array<Stream*, kMost>& streams() const { return streams_; }
  // False if there are more.
  bool are_all() const { return are_all_; }

 private:
  std::unique_lock<std::mutex> lock_;
  std::array<Stream*, kMost> streams_{};
  bool are_all_ = true;
};

// Work for streams, to see whether they go on.
class GoingTrial {
 public:
  static Result<std::unique_ptr<GoingTrial>> make(const Device& device);

  // Gives each stream a kernel and a copy. True once all have ended, false if they have not within `patience`.
  Result<bool> run(const GoingStreams& streams, Nanoseconds patience);

 private:
  static constexpr std::size_t kBytes = 64;  // of a stream's work

  explicit GoingTrial(const Device& device) : device_(device) {}
  Status submit(std::size_t place, Stream& stream);

  const Device& device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<PinnedMemory> target_;
  std::array<std::unique_ptr<Event>, GoingStreams::kMost> events_;  // by place, null until used
};

}  // namespace qccl::device
