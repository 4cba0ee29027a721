// The Python module qccl_fake_device: what tests ask of the driver. fakecuda.py is the device's module in torch.
#include "fake_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/extension.h>

#include <chrono>

namespace {

namespace fake = qccl::device::fake;

CUstream_st* handle(c10::DeviceIndex device, c10::StreamId id) {
  return qccl::fake_device::handle_of(
      c10::Stream(c10::Stream::UNSAFE, c10::Device(qccl::fake_device::kType, device), id));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  c10::register_privateuse1_backend("fakecuda");
  module.def("set_device_count", &fake::set_device_count);
  module.def("device_count", &fake::device_count);
  module.def("take_misuses", &fake::take_misuses);
  module.def("set_delays", [](std::uint64_t seed, int microseconds) {
    fake::set_delays(seed, std::chrono::microseconds(microseconds));
  });
  // Waits for all streams of a device. torch.accelerator.synchronize() of 2.11 does not, for this kind of device.
  module.def(
      "synchronize",
      [](c10::DeviceIndex device) { c10::impl::VirtualGuardImpl(qccl::fake_device::kType).synchronizeDevice(device); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
  // These are for a stream of a device.
  module.def("hold", [](c10::DeviceIndex device, c10::StreamId id) { fake::hold(handle(device, id)); });
  module.def("release", [](c10::DeviceIndex device, c10::StreamId id) { fake::release(handle(device, id)); });
  module.def("capture", [](c10::DeviceIndex device, c10::StreamId id, bool captures) {
    fake::capture(handle(device, id), captures);
  });
  // Streams that the library has made.
  module.def("library_stream_count", [] { return fake::library_streams().size(); });
  module.def("live_objects", &fake::live_objects);
}
