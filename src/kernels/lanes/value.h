// Single values as every kernel and its specification read, write and finish them.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/host_device.h"

namespace qccl::kernels::reference {

template <class T>
QCCL_HD T load_at(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
QCCL_HD void store_at(void* to, std::size_t index, T value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
inline constexpr T kQuietNan = std::numeric_limits<T>::quiet_NaN();

template <class T>
QCCL_HD constexpr T canonical(T value) {
  return value != value ? kQuietNan<T> : value;
}

// Adds all lanes to the first, halving.
template <class T, std::size_t kLanes>
T sum_of_lanes(std::array<T, kLanes> lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// The last step of a decoder: target[i] = y, or with an addend the sum of both.
inline void finish(float y, const float* addend, float* target, std::size_t i) {
  target[i] = addend == nullptr ? y : canonical(addend[i] + y);
}

}  // namespace qccl::kernels::reference
