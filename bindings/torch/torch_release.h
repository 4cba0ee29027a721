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

// Features for which c10d has a macro, so that nightly builds, too, say what they have: hooks for failures, groups that
// get new ranks, windows for one-sided writes.
#ifdef C10D_BACKEND_HAS_HOOKS
#define QCCL_TORCH_HAS_HOOKS 1
#else
#define QCCL_TORCH_HAS_HOOKS 0
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
#define QCCL_TORCH_HAS_RECONFIGURE 1
#else
#define QCCL_TORCH_HAS_RECONFIGURE 0
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
#define QCCL_TORCH_HAS_WINDOWS 1
#else
#define QCCL_TORCH_HAS_WINDOWS 0
#endif

// Hooks for the ends of operations, which C10D_BACKEND_HAS_HOOKS does not promise.
#define QCCL_TORCH_HAS_COMPLETION_HOOKS (QCCL_TORCH_HAS_HOOKS && !QCCL_TORCH_BEFORE(15))

namespace qccl::torch_binding {

#if QCCL_TORCH_BEFORE(12)
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::_REDUCE_SCATTER_BASE;
#else
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif

}  // namespace qccl::torch_binding
