// Four vectors of 32-bit integers to one of bytes, in order, on x86. Per target.
//
// Packing works within each 128 bits: the result is in "packed order", and in_order() restores the element order.

#if defined(QCCL_KERNELS_BYTE_JOIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_BYTE_JOIN_INL_H_
#undef QCCL_KERNELS_BYTE_JOIN_INL_H_
#else
#define QCCL_KERNELS_BYTE_JOIN_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86
using SignedBytes = hn::ScalableTag<std::int8_t>;
using UnsignedBytes = hn::ScalableTag<std::uint8_t>;
using SignedWords = hn::ScalableTag<std::int16_t>;
using ByteCodesVector = hn::Vec<UnsignedBytes>;
using WordVector = hn::Vec<SignedWords>;

#if HWY_MAX_BYTES == 64
HWY_INLINE WordVector pack_words(Integers a, Integers b) { return WordVector{_mm512_packs_epi32(a.raw, b.raw)}; }
HWY_INLINE ByteCodesVector pack_unsigned(WordVector a, WordVector b) {
  return ByteCodesVector{_mm512_packus_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector pack_signed(WordVector a, WordVector b) {
  return ByteCodesVector{_mm512_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return ByteCodesVector{_mm512_permutexvar_epi32(order, packed.raw)};
}
// The reverse, which is the same transposition.
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) { return in_order(ordered); }
#elif HWY_MAX_BYTES == 32
HWY_INLINE WordVector pack_words(Integers a, Integers b) { return WordVector{_mm256_packs_epi32(a.raw, b.raw)}; }
HWY_INLINE ByteCodesVector pack_unsigned(WordVector a, WordVector b) {
  return ByteCodesVector{_mm256_packus_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector pack_signed(WordVector a, WordVector b) {
  return ByteCodesVector{_mm256_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return ByteCodesVector{_mm256_permutevar8x32_epi32(packed.raw, order)};
}
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  return ByteCodesVector{_mm256_permutevar8x32_epi32(ordered.raw, order)};
}
#else
HWY_INLINE WordVector pack_words(Integers a, Integers b) { return WordVector{_mm_packs_epi32(a.raw, b.raw)}; }
HWY_INLINE ByteCodesVector pack_unsigned(WordVector a, WordVector b) {
  return ByteCodesVector{_mm_packus_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector pack_signed(WordVector a, WordVector b) {
  return ByteCodesVector{_mm_packs_epi16(a.raw, b.raw)};
}
HWY_INLINE ByteCodesVector in_order(ByteCodesVector packed) { return packed; }
HWY_INLINE ByteCodesVector in_packed_order(ByteCodesVector ordered) { return ordered; }
#endif
#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
