// Buffers of tests in host memory, in pinned host memory and in that of the fake driver's devices.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "nccl/job.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::testing {

namespace fake = device::fake;

enum class Where { host, pinned, device };
inline std::string name_of(Where where) {
  return where == Where::host ? "host" : where == Where::pinned ? "pinned" : "device";
}

// A rank's stream and buffers. Writes happen some time after the call, in the stream, as those of kernels do.
class Side {
 public:
  explicit Side(Where where, int device = device_of_thread())
      : where_(where), device_(device), stream_(where == Where::host ? nullptr : own_stream(device)) {}
  // The device's calls may still use the buffers.
  ~Side() {
    if (stream_ != nullptr) fake::synchronize(stream_);
    for (void* const each : given_) free(each);
    if (stream_ != nullptr) fake::destroy(stream_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  cudaStream_t stream() const { return stream_; }

  template <class T>
  T* make(const std::vector<T>& content) {
    T* const memory = static_cast<T*>(allocate(content.size() * sizeof(T)));
    if (where_ == Where::device) {
      fake::write(stream_, memory, content.data(), content.size() * sizeof(T));
    } else if (where_ == Where::pinned) {
      fake::enqueue(stream_, [memory, content] { std::memcpy(memory, content.data(), content.size() * sizeof(T)); });
    } else {
      std::memcpy(memory, content.data(), content.size() * sizeof(T));
    }
    return memory;
  }
  template <class T>
  std::vector<T> read(const T* memory, std::size_t count) const {
    std::vector<T> content(count);
    if (where_ == Where::device) {
      fake::read(stream_, memory, content.data(), count * sizeof(T));
    } else {
      if (stream_ != nullptr) fake::synchronize(stream_);
      std::memcpy(content.data(), memory, count * sizeof(T));
    }
    return content;
  }

 private:
  // Ranks are threads, so a device has all their streams: each with a queue of its own.
  static CUstream_st* own_stream(int device) {
    fake::set_queues(fake::kMostQueues);
    return fake::make_stream(device);
  }

  void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    switch (where_) {
      case Where::host: memory = std::malloc(bytes); break;
      case Where::pinned: memory = fake::allocate(fake::Kind::pinned, bytes, device_); break;
      case Where::device: memory = fake::allocate(fake::Kind::device, bytes, device_); break;
    }
    given_.push_back(memory);
    return memory;
  }
  void free(void* memory) const { where_ == Where::host ? std::free(memory) : fake::free(memory); }

  const Where where_;
  const int device_;
  CUstream_st* const stream_;
  std::vector<void*> given_;
};

// Tests of each kind of memory. They end without misuses of the driver.
class Memories : public ::testing::TestWithParam<Where> {
 protected:
  void TearDown() override { EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{}); }
};
inline std::string memory_name(const ::testing::TestParamInfo<Where>& info) { return name_of(info.param); }
// Skips the rest of a SetUp().
inline void need_devices() {
  if (!QCCL_DEVICES) GTEST_SKIP() << "built without devices (QCCL_DEVICES=OFF)";
}
class NeedsDevices : public ::testing::Test {
 protected:
  void SetUp() override { need_devices(); }
};

#if QCCL_DEVICES
inline const auto kHostAndDevice = ::testing::Values(Where::host, Where::device);
inline const auto kEveryMemory = ::testing::Values(Where::host, Where::pinned, Where::device);
#else
inline const auto kHostAndDevice = ::testing::Values(Where::host);
inline const auto kEveryMemory = ::testing::Values(Where::host);
#endif

}  // namespace qccl::testing
