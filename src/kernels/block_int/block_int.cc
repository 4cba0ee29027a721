#include "kernels/block_int/block_int.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_int/block_int.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/block_int/block_int_scalar-inl.h"
#else
#include "kernels/block_int/block_int_decode-inl.h"
#include "kernels/block_int/block_int_encode-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(block_int_encode);
HWY_EXPORT(block_int_decode);
HWY_EXPORT(block_int_decode_add);

}  // namespace

void block_int_encode(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random) {
  QCCL_DISPATCH(block_int_encode)(format, source, n, target, random);
}

void block_int_decode(BlockIntFormat format, const std::byte* source, float* target, std::size_t n) {
  QCCL_DISPATCH(block_int_decode)(format, source, target, n);
}

void block_int_decode_add(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                          std::size_t n) {
  QCCL_DISPATCH(block_int_decode_add)(format, source, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
