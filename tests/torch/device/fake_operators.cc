// Operators run on the CPU (fake_fallback.cc). Views and what makes, resizes and copies tensors can't, and is here.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool) {
  const at::Tensor values = source.is_cpu() ? source : on_cpu(source);
  target.is_cpu() ? static_cast<void>(target.copy_(values)) : write(values, target);
  return target;
}

void grow(const at::Tensor& tensor) {
  const std::size_t elements = static_cast<std::size_t>(tensor.storage_offset() + tensor.numel());
  const std::size_t bytes = elements * tensor.element_size();
  if (tensor.numel() > 0 && bytes > tensor.storage().nbytes()) resize_storage(tensor.storage(), bytes);
}

const at::Tensor& resize_tensor(const at::Tensor& tensor, c10::IntArrayRef size,
                                std::optional<at::MemoryFormat> format) {
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  if (format && tensor.dim() >= 4) tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  grow(tensor);
  return tensor;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) resize_tensor(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}

at::Tensor& set_to_storage(at::Tensor& tensor, c10::Storage storage, std::int64_t offset, c10::IntArrayRef size,
                           c10::IntArrayRef stride) {
  at::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return tensor;
}

at::Tensor& set_to_whole_storage(at::Tensor& tensor, c10::Storage storage) {
  const auto elements = static_cast<std::int64_t>(storage.nbytes() / tensor.element_size());
  return set_to_storage(tensor, std::move(storage), 0, {elements}, {});
}

at::Tensor& set_to_tensor(at::Tensor& tensor, const at::Tensor& source) {
  return set_to_storage(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// The fake driver keeps the bytes for as long as items of a stream use them.
void record_stream(at::Tensor&, c10::Stream) {}

// Torch computes these differently on devices without kernels of their own: the results should have the CPU's bits.
constexpr const char* kAsOnCpu[] = {"native_layer_norm", "native_group_norm", "convolution", "convolution_backward"};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : kAsOnCpu) library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("unfold", &at::native::unfold);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("resize_", &resize_tensor);
  library.impl("set_.source_Storage", &set_to_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_to_storage);
  library.impl("set_.source_Tensor", &set_to_tensor);
  library.impl("record_stream", &record_stream);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace
}  // namespace qccl::fake_device
