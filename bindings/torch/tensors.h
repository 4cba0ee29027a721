// Torch's tensors and reduction operations in the library's terms, with the checks that need
// torch's words. `operation` names the call in messages, for example "all_reduce".
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// What a reduction works on: the tensor's type, and into `options` the operation.
// NotImplementedError, naming both, where the library has no such type or operation.
DataType reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options);

// A tensor's memory for collectives that only move it: any element type, as bytes where the
// library has no name for it.
struct Elements {
  DataType type;
  std::size_t count;
};
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

// Contiguous memory for a tensor that is written: itself, or a copy whose result goes back.
at::Tensor writable_memory(const at::Tensor& tensor, bool keep_values, std::vector<CopyBack>& copies);

// One flat tensor that is these tensors one after the other in memory; undefined if they lie
// otherwise.
at::Tensor as_consecutive(const std::vector<at::Tensor>& tensors);

// `input`, or a copy of it if writing `output` would change it. All collectives work in place
// where input is exactly the part of `output` at `in_place_offset` bytes.
at::Tensor without_overlap(const at::Tensor& input, const at::Tensor& output, std::size_t in_place_offset);

}  // namespace qccl::torch_binding
