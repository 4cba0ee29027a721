// The differences between the PyTorch releases that the backend supports, 2.11 and later. No other file checks the
// release.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#define QCCL_TORCH_BEFORE(minor) (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < (minor))

#if TORCH_VERSION_MAJOR < 2 || QCCL_TORCH_BEFORE(11)
#error "qccl needs PyTorch 2.11 or later: install one, then build qccl again"
#endif

// Stand for `override` in the declarations of functions that c10d has from this release on.
#if QCCL_TORCH_BEFORE(14)
#define QCCL_OVERRIDE_2_14
#else
#define QCCL_OVERRIDE_2_14 override
#endif
#if QCCL_TORCH_BEFORE(15)
#define QCCL_OVERRIDE_2_15
#else
#define QCCL_OVERRIDE_2_15 override
#endif

// c10d has hooks for the ends of operations.
#define QCCL_TORCH_HAS_COMPLETION_HOOKS !QCCL_TORCH_BEFORE(15)

// c10d has groups that get new ranks.
#define QCCL_TORCH_HAS_RECONFIGURE !QCCL_TORCH_BEFORE(14)

// c10d has windows for one-sided writes.
#define QCCL_TORCH_HAS_WINDOWS !QCCL_TORCH_BEFORE(15)

namespace qccl::torch_binding {

#if QCCL_TORCH_BEFORE(12)
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::_REDUCE_SCATTER_BASE;
#else
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif

}  // namespace qccl::torch_binding
