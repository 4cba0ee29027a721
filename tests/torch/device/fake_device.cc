// The Python module qccl_fake_device: what tests ask of the driver. fakecuda.py is the device's module in torch.
#include "fake_device.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <torch/extension.h>

#include <chrono>

namespace {

namespace fake = qccl::device::fake;

CUstream_st* handle(c10::DeviceIndex device, c10::StreamId id) {
  return qccl::fake_device::handle_of(
      c10::Stream(c10::Stream::UNSAFE, c10::Device(qccl::fake_device::kType, device), id));
}

// A sparse tensor, which torch makes for no device of this kind.
at::Tensor sparse(const at::Tensor& indices, const at::Tensor& values, const std::vector<std::int64_t>& size) {
  const at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::SparsePrivateUse1), values.dtype());
  auto* const impl = at::sparse::get_sparse_impl(made);
  impl->resize_(indices.size(0), values.dim() - 1, size);
  impl->set_indices_and_values_unsafe(indices, values);
  return made;
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
  // These are for a stream of a device.
  module.def("hold", [](c10::DeviceIndex device, c10::StreamId id) { fake::hold(handle(device, id)); });
  module.def("release", [](c10::DeviceIndex device, c10::StreamId id) { fake::release(handle(device, id)); });
  module.def("capture", [](c10::DeviceIndex device, c10::StreamId id, bool captures) {
    fake::capture(handle(device, id), captures);
  });
  module.def("sparse", &sparse);
  // Streams that the library has made.
  module.def("library_stream_count", [] { return fake::library_streams().size(); });
  module.def("live_objects", &fake::live_objects);
}
