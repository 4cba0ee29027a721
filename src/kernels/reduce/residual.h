// The residual of an encoding: a pure function over arrays, dispatched at run time; the same bytes on every instruction
// set.
#pragma once

#include <cstddef>

namespace qccl::kernels {

// residual[i] = (value[i] - sent[i]) * factor. Leaves residual[i] unchanged where the result is not finite. Any
// alignment, any n; the arrays do not overlap, but `sent` may be `value`.
void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n);

}  // namespace qccl::kernels
