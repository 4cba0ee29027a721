// Torch's tensors and reduction operations in the library's terms, with the checks that need
// torch's words. `operation` names the call in messages, for example "all_reduce".
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// A tensor's elements as the library has them: `parts` of `type` each.
struct Elements {
  DataType type;
  std::size_t parts = 1;
  std::size_t count_in(const at::Tensor& tensor) const { return static_cast<std::size_t>(tensor.numel()) * parts; }
};

// For a reduction, and into `options` its operation; sums of complex numbers are sums of both parts.
// NotImplementedError, naming both, where the library has no such type or operation.
Elements reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options);
// One rank's contribution to a reduction over several tensors of each rank: the tensors' sum, product, ...
// NotImplementedError for averages: gloo divides only one of the tensors.
at::Tensor local_reduction(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op, const char* operation);
// For what only moves elements: any type, as bytes where the library has no name for it.
Elements elements_of(const at::Tensor& tensor);

// ValueError unless the tensor is dense, on the CPU, and fit to be read (or written).
void check_readable(const at::Tensor& tensor, const char* operation);
void check_writable(const at::Tensor& tensor, const char* operation);
void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation);
[[noreturn]] void throw_bad_argument(const char* operation, const std::string& problem);

// ValueError unless the tensors of a call that takes several a rank have one type and shape, and there is one.
void check_alike(const std::vector<at::Tensor>& tensors, const char* operation);
void check_like(const at::Tensor& tensor, const at::Tensor& first, const char* operation);

// The only tensor of a list that must have one.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation);

// Elements of each tensor, and whether all have as many.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements);
bool all_equal(const std::vector<std::size_t>& counts);

}  // namespace qccl::torch_binding
