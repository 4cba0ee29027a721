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
// For what only moves elements: any type, as bytes where the library has no name for it.
Elements elements_of(const at::Tensor& tensor);

// ValueError unless the tensor is dense, on the CPU, and fit to be read (or written).
void check_readable(const at::Tensor& tensor, const char* operation);
void check_writable(const at::Tensor& tensor, const char* operation);
void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation);
[[noreturn]] void throw_bad_argument(const char* operation, const std::string& problem);

// The only tensor of a list that must have one.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation);

// After the operation: target = source.
struct CopyBack {
  at::Tensor source;
  at::Tensor target;
};

// Contiguous memory with a tensor's values: its own, or a copy.
at::Tensor readable_memory(const at::Tensor& tensor);
// Contiguous memory for a tensor that is written: itself, or a copy whose result goes back.
at::Tensor writable_memory(const at::Tensor& tensor, bool keep_values, std::vector<CopyBack>& copies);

// The tensors of a list one after the other, flat: their own memory where they lie so, else a copy of the values, or
// one whose result goes back to each. The list is not empty.
at::Tensor readable_list(const std::vector<at::Tensor>& tensors);
at::Tensor writable_list(const std::vector<at::Tensor>& tensors, std::vector<CopyBack>& copies);
// Elements of each tensor, and whether all have as many.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements);
bool all_equal(const std::vector<std::size_t>& counts);

// `input`, or a copy of it if writing `output` would change it. All collectives work in place
// where input is exactly the part of `output` at `in_place_offset` bytes.
at::Tensor without_overlap(const at::Tensor& input, const at::Tensor& output, std::size_t in_place_offset);
// The same where `output` is the smaller one: in place it is exactly the part of `input` at that offset.
at::Tensor without_overlap_of_part(const at::Tensor& input, const at::Tensor& output, std::size_t in_place_offset);
// The same where nothing works in place.
at::Tensor apart_from(const at::Tensor& input, const at::Tensor& output);

}  // namespace qccl::torch_binding
