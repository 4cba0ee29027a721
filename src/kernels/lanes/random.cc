#include "kernels/lanes/random.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lanes/random.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/lanes/random-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target) {
  for (std::size_t i = 0; i < n; ++i) target[i] = reference::random_byte(stream, stream.first_element + i);
}

#else

void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target) {
  constexpr std::size_t kRun = 1024;
  RandomRun<kRun> run(stream);
  for (std::size_t i = 0; i < n; i += kRun) {
    const std::size_t count = std::min(kRun, n - i);
    std::memcpy(target + i, run.at(i, count), count);
  }
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, random_bytes, (const RandomStream& stream, std::size_t n, std::uint8_t* target), (stream, n, target))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
