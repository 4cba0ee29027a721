// Ranks as threads, each with a stream of the fake device, and buffers in its memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/elements.h"
#include "support/fake_cuda/fake_cuda.h"
#include "support/transports.h"

namespace qccl::testing {

namespace fake = device::fake;

// A program's stream.
class ProgramStream {
 public:
  explicit ProgramStream(int device = 0) : device_(device), handle_(fake::make_stream(device)) {}
  ~ProgramStream() { fake::destroy(handle_); }
  ProgramStream(const ProgramStream&) = delete;
  ProgramStream& operator=(const ProgramStream&) = delete;

  CUstream_st* handle() const { return handle_; }
  operator DeviceStream() const { return {device_, handle_}; }

 private:
  const int device_;
  CUstream_st* const handle_;
};

// Memory of a device, poisoned.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes, fake::Kind kind = fake::Kind::device, int device = 0)
      : bytes_(bytes), data_(static_cast<std::byte*>(fake::allocate(kind, bytes, device))) {}
  ~DeviceBuffer() { fake::free(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Some time after the call, as a kernel does.
  void write(const ProgramStream& stream, const ByteVector& content, std::size_t offset = 0) const {
    fake::write(stream.handle(), data_ + offset, content.data(), content.size());
  }
  // For calls whose values do not matter.
  void clear(const ProgramStream& stream) const { write(stream, ByteVector(bytes_)); }
  ByteVector read(const ProgramStream& stream) const {
    ByteVector content(bytes_);
    fake::read(stream.handle(), data_, content.data(), bytes_);
    return content;
  }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

// Drives until the call at `index` of those in flight is said to wait for that.
inline void await_state(Communicator& comm, std::size_t index, const std::string& words) {
  while (true) {
    const std::vector<std::string> waiting = comm.in_flight();
    if (waiting.size() > index && waiting[index].find(words) != std::string::npos) return;
    std::this_thread::yield();
  }
}

// Tests over shared memory and TCP. Each ends with all of the driver's objects given back and no misuse.
class DeviceCalls : public Transports {
 protected:
  // Ranks are threads, so the device has all their streams: each with a queue of its own.
  void SetUp() override {
    fake::set_delays(1, std::chrono::microseconds(500));
    fake::set_queues(fake::kMostQueues);
  }
  void TearDown() override {
    fake::set_queues(fake::queues_of_environment());
    EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{});
    EXPECT_EQ(fake::live_objects(), 0u);
  }
};

}  // namespace qccl::testing
