// Words of lossless.h taken apart into exponents and other bits, and put together. Per target.
//
// Arrays of words have whole groups of kGroup; what is written or read beyond the elements asked for is less than
// kLosslessSlack bytes.

#if defined(QCCL_KERNELS_LOSSLESS_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#undef QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#else
#define QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/lossless_levels-inl.h"
#include "kernels/lossless_rule.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::Repartition<std::uint32_t, ListTag>;
using Words = hn::Vec<WordTag>;
using NarrowTag = hn::Rebind<std::uint8_t, WordTag>;  // a byte for each word

HWY_INLINE std::size_t word_lanes() { return hn::Lanes(WordTag()); }

HWY_INLINE Words load_words(const std::uint32_t* words) { return hn::LoadU(WordTag(), words); }

// A byte for each word, from i on, as words.
HWY_INLINE Words widened(const std::uint8_t* bytes, std::size_t i) {
  return hn::PromoteTo(WordTag(), hn::LoadU(NarrowTag(), bytes + i));
}

// A word's exponent on top and its sign at the bottom, and back.
HWY_INLINE Words turned(Words v) { return hn::RotateRight<31>(v); }
HWY_INLINE Words turned_back(Words v) { return hn::RotateRight<1>(v); }

// Four vectors of words below 256 as bytes, in order.
HWY_INLINE List joined(Words a, Words b, Words c, Words e) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, e.raw));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return List{_mm512_permutexvar_epi32(order, bytes)};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, e.raw));
  return List{_mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
#elif HWY_ARCH_X86
  return List{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, e.raw))};
#else
  const NarrowTag d;
  alignas(64) std::uint8_t bytes[hn::MaxLanes(ListTag())];
  hn::StoreU(hn::TruncateTo(d, a), d, bytes);
  hn::StoreU(hn::TruncateTo(d, b), d, bytes + word_lanes());
  hn::StoreU(hn::TruncateTo(d, c), d, bytes + 2 * word_lanes());
  hn::StoreU(hn::TruncateTo(d, e), d, bytes + 3 * word_lanes());
  return hn::Load(ListTag(), bytes);
#endif
}

// Four consecutive vectors of words, whose bytes fill one.
struct FourVectors {
  Words a, b, c, e;

  static HWY_INLINE FourVectors load(const std::uint32_t* words) {
    const std::size_t lanes = word_lanes();
    return {load_words(words), load_words(words + lanes), load_words(words + 2 * lanes), load_words(words + 3 * lanes)};
  }
  // Of each vector what op() makes of it.
  template <class Op>
  HWY_INLINE FourVectors each(Op op) const {
    return {op(a), op(b), op(c), op(e)};
  }
  HWY_INLINE List bytes() const { return joined(a, b, c, e); }
};

// ---- What depends on byte permutes: the uppermost byte of turned words, and the three others.

#if QCCL_HAS_BYTE_COMPRESS

// Indices of vpermb. `upper[q]`: words' uppermost bytes to bytes 16 q and on, and of `to_upper[q]` the reverse;
// `close` and `open` as the blocks below, for the whole vector.
struct ByteOrder {
  alignas(64) std::uint8_t upper[64] = {};
  alignas(64) std::uint8_t to_upper[4][64] = {};
  alignas(64) std::uint8_t close[64] = {};
  alignas(64) std::uint8_t open[64] = {};
  constexpr ByteOrder() {
    for (int i = 0; i < 64; ++i) {
      upper[i] = static_cast<std::uint8_t>(i % 16 * 4 + 3);
      for (int q = 0; q < 4; ++q) to_upper[q][i] = static_cast<std::uint8_t>(16 * q + i / 4);
      close[i] = static_cast<std::uint8_t>(i < 48 ? i / 3 * 4 + i % 3 : 0);
      open[i] = static_cast<std::uint8_t>(i % 4 < 3 ? i / 4 * 3 + i % 4 : 0);
    }
  }
};
alignas(64) inline constexpr ByteOrder kByteOrder;

HWY_INLINE __m512i permuted(const std::uint8_t (&indices)[64], __m512i v) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(indices), v);
}

HWY_INLINE List upper_bytes(const FourVectors& t) {
  const __m512i order = _mm512_load_si512(kByteOrder.upper);
  __m512i v = _mm512_permutexvar_epi8(order, t.a.raw);
  v = _mm512_mask_permutexvar_epi8(v, 0xFFFFull << 16, order, t.b.raw);
  v = _mm512_mask_permutexvar_epi8(v, 0xFFFFull << 32, order, t.c.raw);
  return List{_mm512_mask_permutexvar_epi8(v, 0xFFFFull << 48, order, t.e.raw)};
}

HWY_INLINE void store_threes(Words v, std::uint8_t* to) { _mm512_storeu_si512(to, permuted(kByteOrder.close, v.raw)); }

// Uppermost bytes of kGroup words, to go with the three others of each.
class UpperBytes {
 public:
  explicit HWY_INLINE UpperBytes(const std::uint8_t* bytes) : bytes_(_mm512_loadu_si512(bytes)) {}
  // Words of vector `kVector`, the lower three bytes from `from`.
  template <std::size_t kVector>
  HWY_INLINE Words with_threes(const std::uint8_t* from) const {
    return with<kVector>(Words{permuted(kByteOrder.open, _mm512_loadu_si512(from))});
  }
  // Words of vector `kVector`, with the lower bytes of v.
  template <std::size_t kVector>
  HWY_INLINE Words with(Words v) const {
    const __m512i order = _mm512_load_si512(kByteOrder.to_upper[kVector]);
    return Words{_mm512_mask_permutexvar_epi8(v.raw, 0x8888888888888888ull, order, bytes_)};
  }

 private:
  __m512i bytes_;
};

#else

// Indices that bring the three lower bytes of each word of a 128-bit block to its front, and back.
alignas(16) inline constexpr std::uint8_t kCloseThrees[16] = {0,  1,  2,  4,  5,    6,    8,    9,
                                                              10, 12, 13, 14, 0x80, 0x80, 0x80, 0x80};
alignas(16) inline constexpr std::uint8_t kOpenThrees[16] = {0, 1, 2, 0x80, 3, 4,  5,  0x80,
                                                             6, 7, 8, 0x80, 9, 10, 11, 0x80};

// The same for the three lower words of each 128-bit block among those of the vector.
struct BlockIndices {
  alignas(64) std::int32_t close[16] = {};
  alignas(64) std::int32_t open[16] = {};
  constexpr BlockIndices() {
    for (int i = 0; i < 16; ++i) {
      close[i] = i < 12 ? i / 3 * 4 + i % 3 : 3;
      open[i] = i % 4 < 3 ? i / 4 * 3 + i % 4 : 0;
    }
  }
};
alignas(64) inline constexpr BlockIndices kBlocks;

HWY_INLINE List moved_blocks(List v, const std::int32_t* indices) {
  if constexpr (hn::MaxLanes(WordTag()) <= 4) return v;
  const WordTag d;
  return hn::BitCast(ListTag(), hn::TableLookupLanes(hn::BitCast(d, v), hn::SetTableIndices(d, indices)));
}

HWY_INLINE List upper_bytes(const FourVectors& t) {
  return t.each([](Words v) HWY_ATTR { return hn::ShiftRight<24>(v); }).bytes();
}

HWY_INLINE void store_threes(Words v, std::uint8_t* to) {
  const ListTag d;
  const List closed = hn::TableLookupBytesOr0(hn::BitCast(d, v), hn::LoadDup128(d, kCloseThrees));
  hn::StoreU(moved_blocks(closed, kBlocks.close), d, to);
}

class UpperBytes {
 public:
  explicit HWY_INLINE UpperBytes(const std::uint8_t* bytes) : bytes_(bytes) {}
  template <std::size_t kVector>
  HWY_INLINE Words with_threes(const std::uint8_t* from) const {
    const ListTag d;
    const List threes = moved_blocks(hn::LoadU(d, from), kBlocks.open);
    return with<kVector>(hn::BitCast(WordTag(), hn::TableLookupBytesOr0(threes, hn::LoadDup128(d, kOpenThrees))));
  }
  template <std::size_t kVector>
  HWY_INLINE Words with(Words v) const {
    return hn::Or(v, hn::ShiftLeft<24>(widened(bytes_, kVector * word_lanes())));
  }

 private:
  const std::uint8_t* bytes_;
};

#endif

// Calls use(vector number, index of its first word) for the four vectors of the bytes from i on.
template <class Use>
HWY_INLINE void for_four(std::size_t i, Use use) {
  use(std::integral_constant<std::size_t, 0>(), i);
  use(std::integral_constant<std::size_t, 1>(), i + word_lanes());
  use(std::integral_constant<std::size_t, 2>(), i + 2 * word_lanes());
  use(std::integral_constant<std::size_t, 3>(), i + 3 * word_lanes());
}

// ---- The bits that are not exponents. put() writes those of n words; put_four(), while a whole block is scanned, of
// four vectors, turned, from word i on; get() makes words of them and of exponents.

struct Rest24 {
  static constexpr lossless::Form kForm = lossless::Form::coded_24;

  static HWY_INLINE void put_four(const FourVectors& t, std::size_t i, std::uint8_t* to) {
    const std::size_t bytes = 3 * word_lanes();
    store_threes(t.a, to + 3 * i);
    store_threes(t.b, to + 3 * i + bytes);
    store_threes(t.c, to + 3 * i + 2 * bytes);
    store_threes(t.e, to + 3 * i + 3 * bytes);
  }
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    for (std::size_t i = 0; i < n; i += word_lanes()) store_threes(turned(load_words(words + i)), to + 3 * i);
  }
  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n,
                             std::uint32_t* words) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      const UpperBytes upper(exponents + i);
      for_four(i, [&](auto vector, std::size_t at) HWY_ATTR {
        const Words v = upper.template with_threes<decltype(vector)::value>(from + 3 * at);
        hn::StoreU(turned_back(v), WordTag(), words + at);
      });
    }
  }
};

struct Rest8 {
  static constexpr lossless::Form kForm = lossless::Form::coded_8;

  // Of turned words.
  static HWY_INLINE Words bits(Words v) {
    const WordTag d;
    return hn::Or(hn::And(hn::ShiftRight<16>(v), hn::Set(d, 0xFEu)), hn::And(v, hn::Set(d, 1u)));
  }
  static HWY_INLINE void put_four(const FourVectors& t, std::size_t i, std::uint8_t* to) {
    hn::StoreU(t.each([](Words v) HWY_ATTR { return bits(v); }).bytes(), ListTag(), to + i);
  }
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      put_four(FourVectors::load(words + i).each([](Words v) HWY_ATTR { return turned(v); }), i, to);
    }
  }
  // Turned, without exponents.
  static HWY_INLINE Words get_vector(const std::uint8_t* from, std::size_t i) {
    const Words rest = widened(from, i);
    return hn::And(hn::Or(rest, hn::ShiftLeft<16>(rest)), hn::Set(WordTag(), 0x00FE0001u));
  }
  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n,
                             std::uint32_t* words) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      const UpperBytes upper(exponents + i);
      for_four(i, [&](auto vector, std::size_t at) HWY_ATTR {
        const Words v = upper.template with<decltype(vector)::value>(get_vector(from, at));
        hn::StoreU(turned_back(v), WordTag(), words + at);
      });
    }
  }
};

// As Rest8, and three planes for bits 13 to 15.
struct Rest11 {
  static constexpr lossless::Form kForm = lossless::Form::coded_11;
  static constexpr std::size_t kPlanes = 3;

  // Bits `plane` of bytes as a mask in memory.
  static HWY_INLINE void put_mask(List bytes, std::size_t plane, std::uint8_t* to) {
    const ListTag d;
    const List bit = hn::Set(d, static_cast<std::uint8_t>(1u << plane));
    hn::StoreMaskBits(d, hn::Ne(hn::And(bytes, bit), hn::Zero(d)), to);
  }
  static HWY_INLINE List plane_bits(const FourVectors& t) {
    return t.each([](Words v) HWY_ATTR { return hn::And(hn::ShiftRight<14>(v), hn::Set(WordTag(), 7)); }).bytes();
  }
  static HWY_INLINE void put_four(const FourVectors& t, std::size_t i, std::uint8_t* to) {
    Rest8::put_four(t, i, to);
    const List bits = plane_bits(t);
    for (std::size_t plane = 0; plane < kPlanes; ++plane) {
      put_mask(bits, plane, to + lossless::kBlock + (plane * lossless::kBlock + i) / 8);
    }
  }
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    Rest8::put(words, n, to);
    const std::size_t bytes = lossless::plane_bytes(n);
    alignas(64) std::uint8_t masks[kPlanes][kGroups * 8];
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      const List bits = plane_bits(FourVectors::load(words + i).each([](Words v) HWY_ATTR { return turned(v); }));
      for (std::size_t plane = 0; plane < kPlanes; ++plane) put_mask(bits, plane, masks[plane] + i / 8);
    }
    for (std::size_t plane = 0; plane < kPlanes; ++plane) {
      if (n % 8 != 0) masks[plane][bytes - 1] &= static_cast<std::uint8_t>((1u << n % 8) - 1);
      std::memcpy(to + n + plane * bytes, masks[plane], bytes);
    }
  }

  // Whether the unused bits of the planes are 0.
  static HWY_INLINE bool is_clean(const std::uint8_t* from, std::size_t n) {
    const std::size_t bytes = lossless::plane_bytes(n);
    const std::uint8_t* ends = from + n + bytes - 1;
    return n % 8 == 0 || (ends[0] | ends[bytes] | ends[2 * bytes]) >> (n % 8) == 0;
  }

  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n,
                             std::uint32_t* words) {
    const ListTag d;
    const std::uint8_t* planes = from + n;
    const std::size_t bytes = lossless::plane_bytes(n);
    alignas(64) std::uint8_t bits[hn::MaxLanes(d)];
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      List all = hn::Zero(d);
      for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        const auto mask = hn::LoadMaskBits(d, planes + plane * bytes + i / 8);
        all = hn::Or(all, hn::IfThenElseZero(mask, hn::Set(d, static_cast<std::uint8_t>(1u << plane))));
      }
      hn::Store(all, d, bits);
      const UpperBytes upper(exponents + i);
      for_four(i, [&](auto vector, std::size_t at) HWY_ATTR {
        const Words low = hn::Or(Rest8::get_vector(from, at), hn::ShiftLeft<14>(widened(bits, at - i)));
        hn::StoreU(turned_back(upper.template with<decltype(vector)::value>(low)), WordTag(), words + at);
      });
    }
  }
};

template <class Use>
HWY_INLINE void with_rest(lossless::Form coded, Use use) {
  if (coded == Rest24::kForm) return use(Rest24());
  if (coded == Rest8::kForm) return use(Rest8());
  use(Rest11());
}

// ---- One pass over a block.

struct Scan {
  std::uint32_t any_bits = 0;        // of all words, or-ed
  std::uint32_t differing_bits = 0;  // in which any word differs from the first
  std::uint32_t exponent_sum = 0;
  std::uint32_t nonzero_exponents = 0;

  // Without `count` words like the first.
  HWY_INLINE Scan without(std::size_t count, std::uint32_t first) const {
    const std::uint32_t exponent = first >> 23 & 0xFFu;
    const auto times = static_cast<std::uint32_t>(count);
    return {any_bits, differing_bits, exponent_sum - times * exponent, nonzero_exponents - (exponent != 0 ? times : 0)};
  }
};

HWY_INLINE std::uint32_t or_of_lanes(Words v) {
  alignas(64) std::uint32_t lanes[hn::MaxLanes(WordTag())];
  hn::Store(v, WordTag(), lanes);
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < word_lanes(); ++i) all |= lanes[i];
  return all;
}

template <class Sums>
HWY_INLINE std::uint32_t sum_of_lanes(Sums sums) {
  const hn::DFromV<Sums> d;
  return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d, sums)));
}

// Stores the exponents of n words, whole groups, and calls also(four turned vectors, i) on the way.
template <class Also>
HWY_INLINE Scan scan_words(const std::uint32_t* words, std::size_t n, std::uint8_t* exponents, Also also) {
  const WordTag d;
  const ListTag bytes;
  const hn::Repartition<std::uint64_t, ListTag> sums;
  std::uint32_t first_word;
  std::memcpy(&first_word, words, sizeof(first_word));
  const Words first = hn::Set(d, first_word);
  Words any = hn::Zero(d), differing = hn::Zero(d);
  auto sum = hn::Zero(sums), nonzero = hn::Zero(sums);
  for (std::size_t i = 0; i < n; i += hn::Lanes(bytes)) {
    const FourVectors v = FourVectors::load(words + i);
    any = hn::Or(any, hn::Or(hn::Or(v.a, v.b), hn::Or(v.c, v.e)));
    const FourVectors x = v.each([&](Words w) HWY_ATTR { return hn::Xor(w, first); });
    differing = hn::Or(differing, hn::Or(hn::Or(x.a, x.b), hn::Or(x.c, x.e)));
    const FourVectors t = v.each([](Words w) HWY_ATTR { return turned(w); });
    const List upper = upper_bytes(t);
    hn::Store(upper, bytes, exponents + i);
    sum = hn::Add(sum, hn::SumsOf8(upper));
    nonzero = hn::Add(nonzero, hn::SumsOf8(hn::Min(upper, hn::Set(bytes, 1))));
    also(t, i);
  }
  return {or_of_lanes(any), or_of_lanes(differing), sum_of_lanes(sum), sum_of_lanes(nonzero)};
}

// ---- Upper halves as they are.

HWY_INLINE void put_upper_halves(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
  const hn::Rebind<std::uint16_t, WordTag> halves;
  alignas(64) std::uint16_t block[lossless::kBlock];
  for (std::size_t i = 0; i < n; i += word_lanes()) {
    hn::StoreU(hn::TruncateTo(halves, hn::ShiftRight<16>(load_words(words + i))), halves, block + i);
  }
  std::memcpy(to, block, 2 * n);
}

HWY_INLINE void get_upper_halves(const std::uint8_t* from, std::size_t n, std::uint32_t* words) {
  const WordTag d;
  const hn::Rebind<std::uint16_t, WordTag> halves;
  alignas(64) std::uint16_t block[lossless::kBlock];
  std::memcpy(block, from, 2 * n);
  for (std::size_t i = 0; i < n; i += word_lanes()) {
    hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(halves, block + i))), d, words + i);
  }
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
