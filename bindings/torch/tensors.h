// Torch's tensors and reduction operations in the library's terms, with the checks that need torch's words, and the
// library's errors in torch's terms. `operation` names the call in messages, for example "all_reduce".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <exception>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Keeps the error's text; that of a missed deadline also names what sets it.
//
// | qccl kind                                    | torch, in Python                      |
// |----------------------------------------------|---------------------------------------|
// | invalid_argument                             | ValueError                            |
// | unsupported                                  | NotImplementedError                   |
// | peer_lost, deadline_exceeded, corrupt_data   | torch.distributed.DistNetworkError    |
// | misuse, aborted, resource_exhausted          | torch.distributed.DistBackendError    |
std::exception_ptr to_torch(const ErrorInfo& error);

// Calls `function` and rethrows a qccl::Error as torch's exception.
template <class Function>
auto with_torch_errors(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const Error& error) {
    std::rethrow_exception(to_torch(error.info()));
  }
}

// How the library sees a tensor's elements: each is `parts` values of `type`.
struct Elements {
  DataType type;
  std::size_t parts = 1;
  std::size_t count_in(const at::Tensor& tensor) const { return static_cast<std::size_t>(tensor.numel()) * parts; }
};

// The elements for a reduction; writes the reduction's operation into `options`. A sum of complex numbers sums both
// parts. NotImplementedError, naming type and operation, if the library lacks one of them.
Elements reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options);
// One rank's contribution to a reduction over several tensors per rank: the tensors' sum, product, ...
// NotImplementedError for averages: gloo divides only one of the tensors.
at::Tensor local_reduction(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op, const char* operation);
// Torch's name for a type of the library's.
at::ScalarType torch_type(DataType type);
// The elements for calls that only move them: any type, as bytes if the library has no name for it.
Elements elements_of(const at::Tensor& tensor);

// ValueError, with the problem in words, unless the condition holds.
template <class... Words>
void require(bool condition, const char* operation, const Words&... problem) {
  if (!condition) C10_THROW_ERROR(ValueError, c10::str("qccl: ", operation, ": ", problem...));
}

// Whether calls take tensors of the device, beside the CPU's.
bool is_served(const c10::Device& device);
// The device that all the tensors are on, and `known`, unless empty. ValueError if they are on several.
std::optional<c10::Device> device_of(std::span<const at::Tensor> tensors, const char* operation,
                                     std::optional<c10::Device> known = {});
// The current stream of the device, empty for the CPU.
std::optional<DeviceStream> stream_of_device(std::optional<c10::Device> device);
inline std::optional<DeviceStream> stream_of(std::span<const at::Tensor> tensors, const char* operation) {
  return stream_of_device(device_of(tensors, operation));
}
// Opens the stream's device, which the first call with its tensors would do. For calls whose tensors torch itself
// copies to the CPU: NotImplementedError if the stream is being captured into a CUDA graph.
void open_device(Communicator group, const DeviceStream& stream);

// ValueError unless the tensor is on the CPU or a device that the library serves, and can be read (or written);
// NotImplementedError if it is sparse.
void check_readable(const at::Tensor& tensor, const char* operation);
void check_writable(const at::Tensor& tensor, const char* operation);
void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation);

// For calls that take several tensors per rank: ValueError if there are none, or their types or shapes differ.
void check_alike(const std::vector<at::Tensor>& tensors, const char* operation);
void check_like(const at::Tensor& tensor, const at::Tensor& first, const char* operation);

// ValueError unless `whole` has room for `part` of every rank.
void check_parts(const c10d::Backend& group, const at::Tensor& whole, const at::Tensor& part, const char* operation);
// ValueError unless the list has one tensor for every rank, and this rank's (even: each) as many elements as `part`.
void check_list(const c10d::Backend& group, const std::vector<at::Tensor>& list, const at::Tensor& part,
                const char* operation);
void check_even_list(const c10d::Backend& group, const std::vector<at::Tensor>& list, const at::Tensor& part,
                     const char* operation);

// The tensor of a list that must have exactly one.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation);

// The element count of each tensor.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements);
// The same if some differ, else nothing.
std::vector<std::size_t> uneven_counts(const std::vector<at::Tensor>& tensors, const Elements& elements);
// Where this rank's part begins in a list that has one of each rank, or in one tensor of all parts.
std::size_t bytes_before_own(const c10d::Backend& group, std::span<const at::Tensor> parts);

}  // namespace qccl::torch_binding
