// Sparse tensors (COO) of the device: torch's own kernels, which handle indices and values as dense tensors, make, show
// and copy them. Operators run on the CPU (fake_fallback.cc).
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <torch/library.h>

#include <array>
#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  library.impl("empty.memory_format", &at::native::empty_sparse);
  library.impl("empty_like", &at::native::empty_like_sparse_coo);
  library.impl("_sparse_coo_tensor_with_dims", &at::native::new_with_dims_sparse);
  library.impl("_sparse_coo_tensor_with_dims_and_tensors", &at::native::new_with_dims_and_tensor_sparse_symint);
  library.impl("_indices", &at::native::_indices_sparse);
  library.impl("_values", &at::native::_values_sparse);
  library.impl("indices", &at::native::indices_sparse);
  library.impl("values", &at::native::values_sparse);
  library.impl("sparse_dim", &at::native::sparse_dim_sparse);
  library.impl("_dimI", &at::native::sparse_dim_sparse);
  library.impl("dense_dim", &at::native::dense_dim_sparse);
  library.impl("_dimV", &at::native::dense_dim_sparse);
  library.impl("_nnz", &at::native::_nnz_sparse);
  library.impl("is_coalesced", &at::native::is_coalesced_sparse);
  library.impl("_coalesced_", &at::native::_coalesced_sparse_);
  library.impl("clone", &at::native::clone_sparse);
  library.impl("copy_", &at::native::copy_sparse_wrapper_);
  library.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
  library.impl("sparse_resize_", &at::native::sparse_resize_);
  library.impl("sparse_resize_and_clear_", &at::native::sparse_resize_and_clear_);
  library.impl("zero_", &at::native::zero_sparse_);
}

// As torch's for SparseCUDA.
void all_reduce(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  auto [tensors, group, op, indices, asynchronous, milliseconds] =
      std::to_array<c10::IValue, 6>({(*stack)[0], (*stack)[1], (*stack)[2], (*stack)[3], (*stack)[4], (*stack)[5]});
  torch::jit::drop(*stack, 6);
  std::vector<at::Tensor> list = tensors.toTensorVector();
  c10d::AllreduceOptions options;
  options.reduceOp = *op.toCustomClass<c10d::ReduceOp>();
  options.timeout = std::chrono::milliseconds(milliseconds.toInt());
  options.asyncOp = asynchronous.toBool();
  auto work = group.toCustomClass<c10d::ProcessGroup>()->getBackend(kType)->allreduce(list, options);
  torch::jit::push(*stack, std::move(list), std::move(work));
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, library) {
  library.impl("allreduce_", torch::CppFunction::makeFromBoxedFunction<&all_reduce>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace qccl::fake_device
