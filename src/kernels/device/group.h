// The threads that run a body together. A body is bulk-synchronous: each() calls a function for every lane, with memory
// that only this lane sees, and all lanes have ended it before anything that follows. It is the same source for
//
//   Warp       32 threads of a device (warp.h): each() calls the function once in each thread, Private lies in
//              registers
//   HostGroup  a loop over 32 lanes, forwards or backwards, for tests and for the fake driver
//
//   g.each([&](int lane, Private& own) { ... });      Private: what g was made for; kept between calls
//   g.swap(&Private::sum, step, [](int lane, Private& own, const T& other) { ... });   `other` is what the lane
//       `lane ^ step` had
//   join(g, &Private::sum, lanes, [](T& a, const T& b) { ... });   Every lane gets the join of its team's: `lanes`
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

#include "base/host_device.h"
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
  template <class T, class Base, class Use>
  void swap(T Base::*member, int step, Use use) {
    std::array<T, kGroupLanes> before;
    for (std::size_t lane = 0; lane < kGroupLanes; ++lane) before[lane] = lanes_[lane].*member;
    each([&](int lane, Private& own) { use(lane, own, before[static_cast<std::size_t>(lane ^ step)]); });
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

template <class Group, class T, class Base, class Join>
QCCL_HD void join(Group& group, T Base::*member, int lanes, Join join) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    group.swap(member, step, [&](int, auto& own, const T& other) { join(own.*member, other); });
  }
}

}  // namespace qccl::kernels::device
