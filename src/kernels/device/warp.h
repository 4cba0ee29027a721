// The group of a device (see group.h): a warp. Only for CUDA's compiler.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

template <class Private>
class Warp {
 public:
  template <class Use>
  __device__ void each(Use use) {
    use(static_cast<int>(threadIdx.x % kGroupLanes), own_);
    __syncwarp();
  }
  template <class T, class Base, class Use>
  __device__ void swap(T Base::*member, int step, Use use) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
    std::uint32_t words[sizeof(T) / 4];
    std::memcpy(words, &(own_.*member), sizeof(T));
    for (std::uint32_t& word : words) word = __shfl_xor_sync(kAll, word, step);
    T other;
    std::memcpy(&other, words, sizeof(T));
    use(static_cast<int>(threadIdx.x % kGroupLanes), own_, other);
  }
  template <class Other>
  __device__ Warp<Other> with() const {
    return {};
  }
  __device__ bool any(bool Private::*flag) const { return __any_sync(kAll, own_.*flag) != 0; }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFu;
  Private own_{};
};

}  // namespace qccl::kernels::device
