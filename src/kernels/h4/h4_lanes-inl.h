// Butterflies, signs and codes of h4.h in vectors. Per target, x86.

#include "hwy/highway.h"
#include "kernels/h4/h4_reference.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Butterflies of a Hadamard transform over 256 integers of 16 bits held in registers.
//
// The lanes of a vector are numbered by bits: the highest one or two select the block of 128 bits, the lower three the
// word in it. A butterfly over a bit that selects between two registers is an addition and a subtraction. For a bit of
// the lanes, the butterfly first exchanges it with the bit of the registers: the exchanging butterflies below do both,
// in two shuffles. They leave the register's bit in the lanes, and the caller must keep track of the order of lanes.

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

// ---- Signs and codes.

// Calls use(row, part, signs) for all rows of a seed's signs, which are 0 or -1: the lanes of `part` of the row.
template <class Use>
HWY_INLINE void each_sign_row(std::uint32_t seed, Use use) {
  const hn::ScalableTag<std::uint32_t> d;
  alignas(64) std::uint32_t words[3 * 16];
  for (std::uint32_t i = 0; i < 3 * 16; i += static_cast<std::uint32_t>(hn::Lanes(d))) {
    const auto index = hn::Add(hn::Iota(d, i + 1), hn::Zero(d));
    auto x = hn::Add(hn::Set(d, seed), hn::Mul(index, hn::Set(d, reference::kH4Golden)));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, reference::kRandomFirstFactor));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, reference::kRandomSecondFactor));
    hn::Store(hn::Xor(x, hn::ShiftRight<16>(x)), d, words + i);
  }
  for (int row = 0; row < reference::kH4SignRows; ++row) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto bits = hn::Load(d, words + 16 * (row / 32) + part * hn::Lanes(d));
      const auto highest = hn::BitCast(DwordTag(), hn::ShiftLeftSame(bits, 31 - row % 32));
      use(row, part, hn::ShiftRight<31>(highest));
    }
  }
}

// A block's codes, one per byte: 64 of each field, as if fields had two bits (h4_reference.h).
struct CodeBytes {
  Bytes at[4][kParts];
};

// Shifts the bits of bytes; the caller masks those that come from the neighbouring byte.
template <int kShift>
HWY_INLINE Bytes shift_bits(Bytes v) {
  const hn::Repartition<std::uint16_t, ByteTag> d;
  if constexpr (kShift >= 0) return hn::BitCast(ByteTag(), hn::ShiftLeft<kShift>(hn::BitCast(d, v)));
  if constexpr (kShift < 0) return hn::BitCast(ByteTag(), hn::ShiftRight<-kShift>(hn::BitCast(d, v)));
}

template <int kMask, int kShift>
HWY_INLINE Bytes bits_of(Bytes v) {
  return hn::And(shift_bits<kShift>(v), hn::Set(ByteTag(), kMask));
}

HWY_INLINE Bytes load_bytes(const std::byte* from) {
  return hn::LoadU(ByteTag(), reinterpret_cast<const std::uint8_t*>(from));
}
HWY_INLINE void store_bytes(Bytes v, std::byte* to) { hn::StoreU(v, ByteTag(), reinterpret_cast<std::uint8_t*>(to)); }

// The sign bits of three-bit codes: 32 bytes, in which each part of 64 bytes contributes one half of the bits.
HWY_INLINE void store_sign_plane(const Bytes (&parts)[kParts], std::byte* to) {
#if HWY_MAX_BYTES == 64
  const hn::Half<ByteTag> half;
  const auto upper = hn::BitCast(half, hn::ShiftLeft<4>(hn::BitCast(hn::Repartition<std::uint16_t, decltype(half)>(),
                                                                    hn::UpperHalf(half, parts[0]))));
  hn::StoreU(hn::Or(hn::LowerHalf(half, parts[0]), upper), half, reinterpret_cast<std::uint8_t*>(to));
#else
  for (std::size_t i = 0; i < kParts / 2; ++i) {
    store_bytes(hn::Or(parts[i], shift_bits<4>(parts[i + kParts / 2])), to + i * HWY_MAX_BYTES);
  }
#endif
}
HWY_INLINE void load_sign_plane(const std::byte* from, Bytes (&parts)[kParts]) {
#if HWY_MAX_BYTES == 64
  const hn::Half<ByteTag> half;
  const auto lower = hn::LoadU(half, reinterpret_cast<const std::uint8_t*>(from));
  const auto upper =
      hn::BitCast(half, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<std::uint16_t, decltype(half)>(), lower)));
  parts[0] = hn::Combine(ByteTag(), upper, lower);
#else
  for (std::size_t i = 0; i < kParts / 2; ++i) {
    parts[i] = load_bytes(from + i * HWY_MAX_BYTES);
    parts[i + kParts / 2] = shift_bits<-4>(parts[i]);
  }
#endif
}

template <int kBits>
HWY_INLINE void store_codes(const CodeBytes& codes, std::byte* to) {
  Bytes signs[kParts];
  HWY_UNROLL(4)
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto field = [&](int f) HWY_ATTR { return codes.at[f][part]; };
    std::byte* at = to + part * HWY_MAX_BYTES;
    if constexpr (kBits == 4) {
      store_bytes(hn::Or(field(0), shift_bits<4>(field(1))), at);
      store_bytes(hn::Or(field(2), shift_bits<4>(field(3))), at + 64);
      continue;
    }
    const Bytes lower = hn::Or(bits_of<0x03, 0>(field(0)), bits_of<0x0C, 2>(field(1)));
    const Bytes upper = hn::Or(bits_of<0x30, 4>(field(2)), bits_of<0xC0, 6>(field(3)));
    store_bytes(hn::Or(lower, upper), at);
    if constexpr (kBits == 3) {
      const Bytes first = hn::Or(bits_of<1, -2>(field(0)), bits_of<2, -1>(field(1)));
      signs[part] = hn::Or(first, hn::Or(bits_of<4, 0>(field(2)), bits_of<8, 1>(field(3))));
    }
  }
  if constexpr (kBits == 3) store_sign_plane(signs, to + 64);
}

template <int kBits>
HWY_INLINE void load_codes(const std::byte* from, CodeBytes& codes) {
  Bytes signs[kParts];
  if constexpr (kBits == 3) load_sign_plane(from + 64, signs);
  HWY_UNROLL(4)
  for (std::size_t part = 0; part < kParts; ++part) {
    const Bytes lower = load_bytes(from + part * HWY_MAX_BYTES);
    if constexpr (kBits == 4) {
      const Bytes upper = load_bytes(from + part * HWY_MAX_BYTES + 64);
      codes.at[0][part] = bits_of<15, 0>(lower);
      codes.at[1][part] = bits_of<15, -4>(lower);
      codes.at[2][part] = bits_of<15, 0>(upper);
      codes.at[3][part] = bits_of<15, -4>(upper);
      continue;
    }
    codes.at[0][part] = bits_of<3, 0>(lower);
    codes.at[1][part] = bits_of<3, -2>(lower);
    codes.at[2][part] = bits_of<3, -4>(lower);
    codes.at[3][part] = bits_of<3, -6>(lower);
    if constexpr (kBits == 3) {
      codes.at[0][part] = hn::Or(codes.at[0][part], bits_of<4, 2>(signs[part]));
      codes.at[1][part] = hn::Or(codes.at[1][part], bits_of<4, 1>(signs[part]));
      codes.at[2][part] = hn::Or(codes.at[2][part], bits_of<4, 0>(signs[part]));
      codes.at[3][part] = hn::Or(codes.at[3][part], bits_of<4, -1>(signs[part]));
    }
  }
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
