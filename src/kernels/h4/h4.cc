#include "kernels/h4/h4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/h4/h4.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

// These have no guards: only the first one that needs another includes it.
#include "kernels/h4/h4_slices-inl.h"
#if QCCL_SCALAR || !HWY_ARCH_X86
#include "kernels/h4/h4_scalar-inl.h"
#else
#include "kernels/h4/h4_decode-inl.h"
#include "kernels/h4/h4_encode-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

void h4_encode(H4Format format, H4Signs signs, const float* source, std::size_t n, std::byte* target) {
  with_bits(format.bits, [=](auto bits) HWY_ATTR {
    encode_slice<H4Encoder<decltype(bits)::value>>(format.unbiased, signs, source, n, target);
  });
}

void h4_decode(H4Format format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  with_bits(format.bits, [=](auto b) HWY_ATTR {
    using Decoder = H4Decoder<decltype(b)::value>;
    if (addend == nullptr) return decode_slice<Decoder>(source, target, n, H4Assign());
    decode_slice<Decoder>(source, target, n, H4Add{addend});
  });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, h4_encode, (H4Format format, H4Signs signs, const float* source, std::size_t n, std::byte* target),
            (format, signs, source, n, target))
QCCL_KERNEL(void, h4_decode,
            (H4Format format, const std::byte* source, const float* addend, float* target, std::size_t n),
            (format, source, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
