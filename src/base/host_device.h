// Functions that CUDA's compiler translates for the device as well: QCCL_HD, also where they are constexpr. The build
// allows no others in a kernel: the standard library's may have branches for the host alone, which the compiler would
// drop without a word. QCCL_HD_COLD functions stay functions there, instead of being copied to wherever they are called.
// QCCL_UNROLL before a loop over an array keeps the array in the device's registers; QCCL_ROLL keeps a loop short.
#pragma once

#if defined(__CUDACC__)
#define QCCL_HD __host__ __device__
#define QCCL_HD_COLD __host__ __device__ __noinline__
#define QCCL_UNROLL _Pragma("unroll")
#define QCCL_ROLL _Pragma("unroll 1")
#else
#define QCCL_HD
#define QCCL_HD_COLD
#define QCCL_UNROLL
#define QCCL_ROLL
#endif

namespace qccl {

// Functions of the standard library's names, for both.
template <class To, class From>
QCCL_HD constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}
template <class T>
QCCL_HD constexpr T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
QCCL_HD constexpr T greater(T a, T b) {
  return a < b ? b : a;
}
template <class T>
QCCL_HD constexpr T clamped(T value, T low, T high) {
  return greater(lesser(value, high), low);
}

}  // namespace qccl
