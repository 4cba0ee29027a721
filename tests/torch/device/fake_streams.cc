// Devices, streams and events. A stream of torch is one of the driver's; each thread has a current one for each device.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

namespace fake = qccl::device::fake;

constexpr c10::StreamId kPooled = 8;  // streams of a device's pool, from 1 on; 0 is the default stream

thread_local c10::DeviceIndex this_threads_device = 0;
thread_local std::array<c10::StreamId, fake::kMostDevices> this_threads_streams{};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

CUstream_st* pooled(const c10::Stream& stream) {
  static std::mutex mutex;
  static auto* const made = new std::map<std::pair<c10::DeviceIndex, c10::StreamId>, CUstream_st*>;
  const std::lock_guard lock(mutex);
  CUstream_st*& handle = (*made)[{stream.device_index(), stream.id()}];
  if (handle == nullptr) handle = fake::make_stream(stream.device_index());
  return handle;
}

struct Moment {
  std::atomic<bool> happened{false};
  std::chrono::steady_clock::time_point at{};  // written before it has happened
};
using Event = std::shared_ptr<Moment>;

Event& event_at(void* event) { return *static_cast<Event*>(event); }

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(this_threads_device, device.index() < 0 ? this_threads_device : device.index())};
  }
  c10::Device getDevice() const override { return {kType, this_threads_device}; }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchangeDevice(device); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(fake::device_count()); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<c10::StreamId> taken{0};
    return stream_of(device.index() < 0 ? this_threads_device : device.index(), taken++ % kPooled + 1);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = this_threads_streams[static_cast<std::size_t>(stream.device_index())];
    return stream_of(stream.device_index(), std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return native_handle(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    const auto reached = std::make_shared<std::atomic<bool>>(false);
    fake::enqueue(handle_of(stream), [reached] { *reached = true; });
    return *reached;
  }
  void synchronizeStream(const c10::Stream& stream) const override { fake::synchronize(handle_of(stream)); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (c10::StreamId id = 0; id <= kPooled; ++id) synchronizeStream(stream_of(device, id));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    const Event moment = event_at(*event) = std::make_shared<Moment>();
    fake::enqueue(handle_of(stream), [moment] {
      moment->at = std::chrono::steady_clock::now();
      moment->happened = true;
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    fake::enqueue(handle_of(stream), [moment = event_at(event)] {
      while (!moment->happened) std::this_thread::yield();
    });
  }
  bool queryEvent(void* event) const override { return event == nullptr || event_at(event)->happened; }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(event_at(second)->at - event_at(first)->at).count();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

}  // namespace

CUstream_st* native_handle(const c10::Stream& stream) { return stream.id() == 0 ? nullptr : pooled(stream); }

CUstream_st* handle_of(const c10::Stream& stream) {
  return stream.id() == 0 ? fake::default_stream(stream.device_index()) : pooled(stream);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex own = device < 0 ? this_threads_device : device;
  return stream_of(own, this_threads_streams[static_cast<std::size_t>(own)]);
}

c10::DeviceIndex current_device() { return this_threads_device; }

}  // namespace qccl::fake_device
