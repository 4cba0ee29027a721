// The butterflies of a Hadamard transform over 256 integers of 16 bits held in registers. Per target, x86.
//
// The lanes of a vector are numbered by bits: the highest one or two select the block of 128 bits, the lower three the
// word in it. A butterfly over a bit that selects between two registers is an addition and a subtraction. For a bit of
// the lanes, the butterfly first exchanges it with the bit of the registers: the exchanging butterflies below do both,
// in two shuffles. They leave the register's bit in the lanes, and the caller must keep track of the order of lanes.

#if defined(QCCL_KERNELS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_HADAMARD_INL_H_
#undef QCCL_KERNELS_HADAMARD_INL_H_
#else
#define QCCL_KERNELS_HADAMARD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_MAX_BYTES == 64
#define QCCL_X86(operation) _mm512_##operation
#elif HWY_MAX_BYTES == 32
#define QCCL_X86(operation) _mm256_##operation
#else
#define QCCL_X86(operation) _mm_##operation
#endif

using WordTag = hn::ScalableTag<std::int16_t>;
using DwordTag = hn::ScalableTag<std::int32_t>;
using ByteTag = hn::ScalableTag<std::uint8_t>;
using FloatTag = hn::ScalableTag<float>;
using Words = hn::Vec<WordTag>;
using Dwords = hn::Vec<DwordTag>;
using Bytes = hn::Vec<ByteTag>;
using Floats = hn::Vec<FloatTag>;

// Registers that make up 64 bytes.
inline constexpr std::size_t kParts = 64 / HWY_MAX_BYTES;

// Pairs of neighbours: a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1].
HWY_INLINE Dwords pair_products(Words a, Words b) { return Dwords{QCCL_X86(madd_epi16)(a.raw, b.raw)}; }
// The same of unsigned and signed bytes; their sums fit 16 bits.
HWY_INLINE Words byte_pair_products(Bytes a, Bytes b) { return Words{QCCL_X86(maddubs_epi16)(a.raw, b.raw)}; }
// In each block of 128 bits the bytes of `a`, then those of `b`, clamped to -128..127.
HWY_INLINE Bytes join_bytes(Words a, Words b) { return Bytes{QCCL_X86(packs_epi16)(a.raw, b.raw)}; }
// The same from 32 bits to 16.
HWY_INLINE Words join_words(Dwords a, Dwords b) { return hn::ReorderDemote2To(WordTag(), a, b); }

HWY_INLINE void butterfly(Words& a, Words& b) {
  const Words sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// Lane bits (2 1 0) and the register's r: over bit 2, leaving (1 0 r).
HWY_INLINE void butterfly_words(Words& a, Words& b) {
  const WordTag d;
  const Words lower = hn::InterleaveLower(d, a, b);
  b = hn::InterleaveUpper(d, a, b);
  a = lower;
  butterfly(a, b);
}

// Over bit 2, leaving (1 r 0).
HWY_INLINE void butterfly_dwords(Words& a, Words& b) {
  const DwordTag d;
  const Dwords lower = hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b));
  const Dwords upper = hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b));
  a = hn::BitCast(WordTag(), lower);
  b = hn::BitCast(WordTag(), upper);
  butterfly(a, b);
}

// Over bit 2, leaving (r 1 0).
HWY_INLINE void butterfly_qwords(Words& a, Words& b) {
  const hn::ScalableTag<std::int64_t> d;
  const auto lower = hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b));
  const auto upper = hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b));
  a = hn::BitCast(WordTag(), lower);
  b = hn::BitCast(WordTag(), upper);
  butterfly(a, b);
}

#if HWY_MAX_BYTES >= 32
// Over the lowest bit of the blocks' number: (4 3) leaves (r 4), and (3) leaves (r).
HWY_INLINE void butterfly_blocks(Words& a, Words& b) {
#if HWY_MAX_BYTES == 64
  const Words lower{_mm512_shuffle_i64x2(a.raw, b.raw, 0x88)};
  b = Words{_mm512_shuffle_i64x2(a.raw, b.raw, 0xDD)};
#else
  const Words lower{_mm256_permute2x128_si256(a.raw, b.raw, 0x20)};
  b = Words{_mm256_permute2x128_si256(a.raw, b.raw, 0x31)};
#endif
  a = lower;
  butterfly(a, b);
}
#endif

// Four neighbours x each: their sum minus 2 x. Words (a b c d): c + d -+ (a - b), a + b -+ (c - d).
HWY_INLINE Words transform_quads(Words x) {
  const hn::Repartition<std::uint32_t, WordTag> d;
#if HWY_MAX_BYTES == 64
  const Words swapped = hn::BitCast(WordTag(), hn::RotateRight<16>(hn::BitCast(d, x)));
#else
  alignas(16) static constexpr std::uint8_t kSwap[16] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  const Words swapped = hn::TableLookupBytes(x, hn::BitCast(WordTag(), hn::LoadDup128(ByteTag(), kSwap)));
#endif
  const auto sums = hn::BitCast(d, hn::Add(x, swapped));
  return hn::Add(hn::BitCast(WordTag(), hn::Shuffle2301(sums)), hn::Sub(swapped, x));
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
