#include "tools/perf/perf_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "device/device.h"
namespace qccl::tools {
namespace {

class DeviceBuffers final : public BufferMemory {
 public:
  explicit DeviceBuffers(int local_rank)
      : runtime_(device::Runtime::open().take_or_throw()),
        device_(runtime_->device(local_rank % std::max(runtime_->device_count(), 1)).take_or_throw()),
        stream_(device::Stream::create(*device_).take_or_throw()),
        event_(device::Event::create(*device_).take_or_throw()) {}

  std::byte* allocate(std::uint64_t bytes) override {
    const std::uint64_t at_least_some = bytes + 1;  // a driver allocates no 0 bytes
    auto allocated = device::DeviceMemory::allocate(*device_, at_least_some);
    if (!allocated.ok()) {
      ErrorInfo error = allocated.error();
      error.message = fmt::format("no memory for a buffer of {} bytes, lower -e: {}", bytes, error.message);
      throw Error(error);
    }
    if (at_least_some > host_bytes_) host_ = Pages(host_bytes_ = at_least_some);
    return buffers_.emplace_back(std::move(*allocated))->data();
  }

  std::optional<DeviceStream> stream() const override { return DeviceStream{device_->index(), stream_->handle()}; }
  int device() const override { return device_->index(); }
  std::string name() const override { return runtime_->traits(device_->index()).take_or_throw().name; }

  std::byte* contents(std::byte*, std::uint64_t) override { return host_.data(); }

  void put(std::byte* buffer, std::uint64_t bytes) override {
    if (bytes == 0) return;
    stream_->copy_to_device(buffer, host_.data(), bytes).take_or_throw();
    wait();
  }

  const std::byte* get(const std::byte* buffer, std::uint64_t bytes) override {
    if (bytes > 0) stream_->copy_to_host(host_.data(), buffer, bytes).take_or_throw();
    wait();
    return host_.data();
  }

  void copy(std::byte* target, const std::byte* source, std::uint64_t bytes) override {
    if (bytes > 0) stream_->copy_on_device(target, source, bytes).take_or_throw();
  }

 private:
  // Nothing but copies is ahead, which end by themselves.
  void wait() {
    event_->record(stream_->handle()).take_or_throw();
    while (!event_->has_happened().take_or_throw()) std::this_thread::yield();
  }

  const std::unique_ptr<device::Runtime> runtime_;
  const device::Device* const device_;
  const std::unique_ptr<device::Stream> stream_;
  const std::unique_ptr<device::Event> event_;
  std::vector<std::unique_ptr<device::DeviceMemory>> buffers_;
  Pages host_;  // as large as the largest buffer
  std::uint64_t host_bytes_ = 0;
};

}  // namespace

std::unique_ptr<BufferMemory> make_device_buffers(int local_rank) {
  return std::make_unique<DeviceBuffers>(local_rank);
}

std::optional<std::string> problem_of_devices() {
  const auto runtime = device::Runtime::open();
  if (!runtime.ok()) return runtime.error().message;
  if (runtime.value()->device_count() == 0) return "the driver lists no GPU; see whether nvidia-smi lists one";
  return std::nullopt;
}

}  // namespace qccl::tools
