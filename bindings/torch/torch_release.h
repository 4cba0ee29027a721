// The differences between the PyTorch releases that the backend supports, 2.11 and later. No other file checks the
// release.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#define QCCL_TORCH_BEFORE(minor) (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < (minor))

#if TORCH_VERSION_MAJOR < 2 || QCCL_TORCH_BEFORE(11)
#error "qccl needs PyTorch 2.11 or later: install one, then build qccl again"
#endif

namespace qccl::torch_binding {

#if QCCL_TORCH_BEFORE(12)
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::_REDUCE_SCATTER_BASE;
#else
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif

}  // namespace qccl::torch_binding
