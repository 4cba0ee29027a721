// What the programs of bench/gpu share: a GPU with a stream, its memory, clocks, and what they print and write.
//
// Exit codes of both: 0; 1 if bytes differ; 2 for wrong flags; 3 without a driver or a GPU; 4 for other failures.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"

namespace qccl::bench::gpu {

using Json = nlohmann::ordered_json;

enum Exit : int { kEqual = 0, kDiffers = 1, kWrongFlags = 2, kNoGpu = 3, kFailed = 4 };

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Three digits.
inline Json rounded(double value) { return std::stod(fmt::format("{:.3g}", value)); }

// A line of progress.
template <class... Arguments>
void say(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  fmt::print("{}\n", fmt::format(text, std::forward<Arguments>(arguments)...));
  std::fflush(stdout);
}

// Runs body(index) for every index on so many threads.
template <class Body>
void in_parallel(std::size_t count, unsigned threads, Body body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t index = next++; index < count; index = next++) body(index);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

// One thread at a time. Everything throws qccl::Error where the driver fails.
class Gpu {
 public:
  explicit Gpu(device::Runtime& runtime, int index = 0)
      : device_(runtime.device(index).take_or_throw()),
        traits_(runtime.traits(index).take_or_throw()),
        stream_(device::Stream::create(*device_).take_or_throw()),
        event_(device::Event::create(*device_).take_or_throw()) {}

  const device::Device& device() const { return *device_; }
  const device::Traits& traits() const { return traits_; }
  device::Stream& stream() { return *stream_; }
  device::Event& event() { return *event_; }

  std::unique_ptr<device::DeviceMemory> memory(std::size_t bytes) {
    return device::DeviceMemory::allocate(*device_, bytes).take_or_throw();
  }
  std::unique_ptr<device::PinnedMemory> pinned(std::size_t bytes) {
    return device::PinnedMemory::allocate(*device_, bytes).take_or_throw();
  }

  // Until the stream has done all it has. Nothing that is submitted here waits for anything else.
  void wait() {
    event_->record(stream_->handle()).take_or_throw();
    while (!event_->has_happened().take_or_throw()) std::this_thread::yield();
  }
  void upload(void* target, const void* source, std::size_t bytes) {
    stream_->copy_to_device(target, source, bytes).take_or_throw();
    wait();
  }
  void download(void* target, const void* source, std::size_t bytes) {
    stream_->copy_to_host(target, source, bytes).take_or_throw();
    wait();
  }

  // Seconds of what `submit` puts into the stream: the median of so many samples, each of runs for 10 ms.
  template <class Submit>
  double seconds(int samples, Submit submit) {
    const double first = timed(1, submit);
    const int runs = samples <= 1 ? 1 : std::clamp(static_cast<int>(0.01 / std::max(first, 1e-7)), 1, 1000);
    std::vector<double> taken;
    for (int i = 0; i < std::max(samples, 1); ++i) taken.push_back(timed(runs, submit));
    return median(taken);
  }

 private:
  template <class Submit>
  double timed(int runs, Submit& submit) {
    const double start = seconds_now();
    for (int i = 0; i < runs; ++i) submit();
    wait();
    return (seconds_now() - start) / runs;
  }

  const device::Device* const device_;
  const device::Traits traits_;
  const std::unique_ptr<device::Stream> stream_;
  const std::unique_ptr<device::Event> event_;
};

inline void write_json(const std::string& file, const Json& document) {
  if (file.empty()) return;
  std::ofstream stream(file);
  stream << document.dump(1) << "\n";
  if (!stream) throw std::runtime_error("can't write " + file);
}

// Runs `measure` with the driver, and turns what it throws into an exit code.
template <class Measure>
int with_driver(const char* program, Measure measure) {
  try {
    auto runtime = device::Runtime::open();
    if (!runtime.ok() || runtime.value()->device_count() == 0) {
      fmt::print(stderr, "{}: no GPU: {}\n", program,
                 runtime.ok() ? "the driver has no device" : runtime.error().message);
      return kNoGpu;
    }
    return measure(*runtime.value());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kFailed;
  }
}

}  // namespace qccl::bench::gpu
