// Functions that CUDA's compiler translates for the device as well: QCCL_HD. Constexpr functions are that without a
// mark. QCCL_HD_COLD functions stay functions there, instead of being copied to wherever they are called. QCCL_UNROLL
// before a loop over an array keeps the array in the device's registers.
#pragma once

#if defined(__CUDACC__)
#define QCCL_HD __host__ __device__
#define QCCL_HD_COLD __host__ __device__ __noinline__
#define QCCL_UNROLL _Pragma("unroll")
#else
#define QCCL_HD
#define QCCL_HD_COLD
#define QCCL_UNROLL
#endif

namespace qccl {

// std::min and std::max by value: a device has no address for a constant of the host's.
template <class T>
constexpr T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T greater(T a, T b) {
  return a < b ? b : a;
}

}  // namespace qccl
