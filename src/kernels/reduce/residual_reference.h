// The specification of residual.h, one element at a time.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::reference {

// Processes elements [begin, end).
inline void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t begin,
                          std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float left = (load_at<float>(value, i) - load_at<float>(sent, i)) * factor;
    if (std::isfinite(left)) store_at(residual, i, left);
  }
}

}  // namespace qccl::kernels::reference
