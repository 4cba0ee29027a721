// Gates: streams of the program that wait until the host lets them go on. The driver reads a number in pinned memory,
// and a plain store opens the gate, whatever the driver does at that time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "device/going_streams.h"

namespace qccl::device {

// One that was closed.
struct Gate {
  std::size_t word = 0;
  std::uint32_t count = 0;  // the word's value from which on it is open
};

// Those of a device. Thread-safe.
class Gates {
 public:
  // Takes all memory that gates need.
  static Result<std::unique_ptr<Gates>> open(const Device& device);
  // Opens all. Memory that the trial frees is freed when the program's streams have come there.
  ~Gates();
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  // Closes one to see whether another stream of the device goes on meanwhile, and calls of the driver in other threads.
  // Unsupported, with what did not, if not. Once. Blocks for two seconds at most of those in which its thread runs.
  Status try_out();

  // The stream stops here, before all work that it is given from now on. Nothing if too many gates are closed, or if
  // the stream holds up one of the library's when it waits (GoingStream), which is tried when it first does: that
  // blocks for a quarter of a second at most. After eight such streams no more are tried.
  Result<std::optional<Gate>> close(CUstream_st* stream);
  // False if open_all() has opened it.
  bool open(Gate gate);
  // For streams that must wait no longer.
  void open_all();

  bool any_closed() const;
  // How many were opened until now.
  std::uint64_t opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  struct Trial;
  // Whether a stream may wait.
  enum class Verdict { untried, passed, failed };

  Gates(const Device& device, std::unique_ptr<PinnedMemory> memory, std::unique_ptr<GoingTrial> trial);
  Result<std::optional<Gate>> close_word(CUstream_st* stream);
  Result<std::optional<Gate>> try_stream(CUstream_st* stream, std::uint64_t id, const GoingStreams& streams);
  Verdict verdict(std::uint64_t id, std::uint64_t come);
  bool note(std::uint64_t id, bool passes);
  // With mutex_. False if it is open.
  bool open_word(std::size_t word);

  const Device& device_;
  const std::unique_ptr<PinnedMemory> memory_;
  const std::unique_ptr<GoingTrial> trial_;
  std::uint32_t* const words_;            // how often each was opened; streams read them
  std::unique_ptr<Trial> tried_out_;      // null until try_out()
  std::atomic<std::uint64_t> opened_{0};  // relaxed: a count
  mutable std::mutex mutex_;              // guards what follows, and the writes to the words
  std::vector<std::uint32_t> closed_;     // how often each was closed
  std::vector<std::size_t> free_;         // words of open gates
  // By the number that the driver gives a stream. Those that passed are tried again when streams have come.
  std::unordered_map<std::uint64_t, bool> passed_;
  std::uint64_t come_ = 0;
  std::size_t failed_ = 0;
};

}  // namespace qccl::device
