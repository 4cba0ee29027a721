// Converts QCCL's errors to torch's and keeps their text. The text of a missed deadline also names what sets it.
#pragma once

#include <exception>
#include <utility>

#include "qccl/error.h"

namespace qccl::torch_binding {

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

}  // namespace qccl::torch_binding
