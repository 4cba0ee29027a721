// Calls the implementation of a kernel for the chosen instruction set. Highway's own choice is a global of a shared
// library; ours is separate, so that forcing it does not affect other users.
#pragma once

#include "hwy/highway.h"

namespace qccl::kernels {

// Written once on first use, and by force_simd().
hwy::ChosenTarget& chosen_simd();

}  // namespace qccl::kernels

// Whether the code being compiled is that of the target without vectors.
#define QCCL_SCALAR (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define QCCL_DISPATCH(function) HWY_STATIC_DISPATCH(function)
#else
#define QCCL_DISPATCH(function) (*(HWY_DISPATCH_TABLE(function)[::qccl::kernels::chosen_simd().GetIndex()]))
#endif

// Defines a kernel, which its header declares, as a call of the chosen instruction set's function of the same name:
// QCCL_KERNEL(void, copy, (float* target, const float* source), (target, source)).
#define QCCL_KERNEL(result, name, parameters, arguments) \
  HWY_EXPORT(name);                                      \
  result name parameters { return QCCL_DISPATCH(name) arguments; }
