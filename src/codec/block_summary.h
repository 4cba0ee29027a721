// What is known of the values of a block (a bucket, or several) when the error of its encoding is
// bounded before or without encoding it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace qccl {

struct BlockSummary {
  // No value lies outside. Both finite.
  double minimum = 0;
  double maximum = 0;
  // The Euclidean norm is at most this; infinity where only the extremes are known.
  double norm = std::numeric_limits<double>::infinity();

  double magnitude() const { return std::max(std::fabs(minimum), std::fabs(maximum)); }
  // Of a block of so many values, the tighter of what is known.
  double norm_of(std::size_t elements) const {
    const double widest = magnitude() * std::sqrt(static_cast<double>(elements));
    return norm < widest ? norm : widest;
  }
};

}  // namespace qccl
