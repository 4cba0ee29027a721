// DeepSpeed's 1-bit all-reduce (qccl/onebit.h) for torch's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Calls Communicator::compressed_allreduce() in place. Takes dense float32 tensors on the CPU: `buffer` of any shape
// and strides, the errors contiguous. Blocking. ValueError for other tensors or a wrong number of elements.
void compressed_allreduce(Communicator& group, const at::Tensor& buffer, const at::Tensor& worker_error,
                          const at::Tensor& server_error);

}  // namespace qccl::torch_binding
