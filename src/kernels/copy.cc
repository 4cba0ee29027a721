#include "kernels/copy.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

void copy(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) { std::memcpy(target, source, bytes); }

#else

namespace hn = hwy::HWY_NAMESPACE;

// Copies at least one vector of bytes.
void copy(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t head = (0 - reinterpret_cast<std::uintptr_t>(target)) % lanes;
  hn::StoreU(hn::LoadU(d, source), d, target);
  std::size_t i = head;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, source + i), b = hn::LoadU(d, source + i + lanes);
    const auto c = hn::LoadU(d, source + i + 2 * lanes), e = hn::LoadU(d, source + i + 3 * lanes);
    hn::Store(a, d, target + i);
    hn::Store(b, d, target + i + lanes);
    hn::Store(c, d, target + i + 2 * lanes);
    hn::Store(e, d, target + i + 3 * lanes);
  }
  std::memcpy(target + i, source + i, bytes - i);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(copy);

// glibc uses `rep movsb` from 2 KiB on; it bypasses the caches only far above the largest slice.
constexpr std::size_t kMinBytes = 2048;
constexpr std::size_t kMaxBytes = 4 << 20;

}  // namespace

void copy(void* target, const void* source, std::size_t bytes) {
  if (bytes >= kMinBytes && bytes <= kMaxBytes) {
    QCCL_DISPATCH(copy)(static_cast<std::uint8_t*>(target), static_cast<const std::uint8_t*>(source), bytes);
  } else if (bytes > 0) {
    std::memcpy(target, source, bytes);
  }
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
