// The threads that run a body together. A body is bulk-synchronous: each() calls a function for every lane, with memory
// that only this lane sees, and all lanes have ended it before anything that follows. It is the same source for
//
//   Warp       32 threads of a device (warp.h): each() calls the function once in each thread, Private lies in
//              registers
//   HostGroup  a loop over 32 lanes, forwards or backwards, for tests and for the fake driver
//
//   g.each([&](int lane, Private& own) { ... });      Private: what g was made for; kept between calls
//   g.join(&Private::sum, lanes, [](T& a, const T& b) { ... });   Every lane gets the join of its team's: `lanes`
//       neighbours, a power of two up to 32. In steps lanes / 2, ... 1 each joins that of the lane as far away, so the
//       function must be commutative in every bit.
//   g.any(&Private::flag)       whether it is true in a lane
//   g.with<Other>()             the same threads with other memory
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
  template <class T, class Base, class Join>
  void join(T Base::*member, int lanes, Join join) {
    for (int step = lanes / 2; step > 0; step /= 2) {
      std::array<T, kGroupLanes> before;
      for (std::size_t lane = 0; lane < kGroupLanes; ++lane) before[lane] = lanes_[lane].*member;
      for (std::size_t lane = 0; lane < kGroupLanes; ++lane) {
        join(lanes_[lane].*member, before[lane ^ static_cast<std::size_t>(step)]);
      }
    }
  }
  template <class Other>
  HostGroup<Other> with() const {
    return HostGroup<Other>(backwards_);
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

}  // namespace qccl::kernels::device
