// Known limits of the values of a block (a bucket, or several), from which the error of its encoding is bounded before
// it is encoded, or without encoding it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace qccl {

struct BlockSummary {
  // No value lies outside; both are finite.
  double minimum = 0;
  double maximum = 0;
  // The Euclidean norm is at most this; infinity if only the extremes are known.
  double norm = std::numeric_limits<double>::infinity();

  double magnitude() const { return std::max(std::fabs(minimum), std::fabs(maximum)); }
  // Bound on the norm of a block of `elements` values: the tighter of the two that are known.
  double norm_of(std::size_t elements) const {
    const double widest = magnitude() * std::sqrt(static_cast<double>(elements));
    return norm < widest ? norm : widest;
  }
};

}  // namespace qccl
