// DeepSpeed's 1-bit all-reduce (qccl/onebit.h) for torch's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Communicator::compressed_allreduce() in place: dense float32 tensors on the CPU, `buffer` of any shape and strides,
// the errors contiguous. Blocking. ValueError where they are not, or have the wrong number of elements.
void compressed_allreduce(Communicator& group, const at::Tensor& buffer, const at::Tensor& worker_error,
                          const at::Tensor& server_error);

}  // namespace qccl::torch_binding
