// The threads that run a body together. A body is bulk-synchronous: each() calls a function for every lane, with memory
// that only this lane sees, and all lanes have ended it before anything that follows. It is the same source for
//
//   Warp       32 threads of a device: each() calls the function once in each thread, Private lies in registers
//   HostGroup  a loop over 32 lanes, forwards or backwards, for tests and for the fake driver
//
//   g.each([&](int lane, Private& own) { ... });      Private: what g was made for; kept between calls
//   g.join(&Private::sum, lanes, [](T& a, const T& b) { ... });   Every lane gets the join of its team's: `lanes`
//       neighbours, a power of two up to 32. In steps lanes / 2, ... 1 each joins that of the lane as far away, so the
//       function must be commutative in every bit.
//   g.any(&Private::flag)       whether it is true in a lane
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

template <class Private>
class HostGroup {
 public:
  explicit HostGroup(bool backwards) : backwards_(backwards) {}

  template <class Use>
  void each(Use use) {
    for (int i = 0; i < kGroupLanes; ++i) {
      const int lane = backwards_ ? kGroupLanes - 1 - i : i;
      use(lane, lanes_[static_cast<std::size_t>(lane)]);
    }
  }
  template <class T, class Join>
  void join(T Private::*member, int lanes, Join join) {
    for (int step = lanes / 2; step > 0; step /= 2) {
      const std::array<Private, kGroupLanes> before = lanes_;
      for (std::size_t lane = 0; lane < kGroupLanes; ++lane) {
        join(lanes_[lane].*member, before[lane ^ static_cast<std::size_t>(step)].*member);
      }
    }
  }
  bool any(bool Private::*flag) const {
    for (const Private& lane : lanes_) {
      if (lane.*flag) return true;
    }
    return false;
  }

 private:
  const bool backwards_;
  std::array<Private, kGroupLanes> lanes_{};
};

#if defined(__CUDACC__)

template <class Private>
class Warp {
 public:
  template <class Use>
  __device__ void each(Use use) {
    use(static_cast<int>(threadIdx.x % kGroupLanes), own_);
    __syncwarp();
  }
  template <class T, class Join>
  __device__ void join(T Private::*member, int lanes, Join join) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
    for (int step = lanes / 2; step > 0; step /= 2) {
      std::uint32_t words[sizeof(T) / 4];
      std::memcpy(words, &(own_.*member), sizeof(T));
      for (std::uint32_t& word : words) word = __shfl_xor_sync(kAll, word, step);
      T other;
      std::memcpy(&other, words, sizeof(T));
      join(own_.*member, other);
    }
  }
  __device__ bool any(bool Private::*flag) const { return __any_sync(kAll, own_.*flag) != 0; }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFu;
  Private own_{};
};

#endif

}  // namespace qccl::kernels::device
