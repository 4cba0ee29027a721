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

// Four vectors of words below 256 as bytes, in order.
HWY_INLINE void store_joined(Words a, Words b, Words c, Words e, std::uint8_t* to) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, e.raw));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, e.raw));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  hn::StoreU(List{_mm256_permutevar8x32_epi32(bytes, order)}, ListTag(), to);
#elif HWY_ARCH_X86
  hn::StoreU(List{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, e.raw))}, ListTag(), to);
#else
  const NarrowTag d;
  hn::StoreU(hn::TruncateTo(d, a), d, to);
  hn::StoreU(hn::TruncateTo(d, b), d, to + word_lanes());
  hn::StoreU(hn::TruncateTo(d, c), d, to + 2 * word_lanes());
  hn::StoreU(hn::TruncateTo(d, e), d, to + 3 * word_lanes());
#endif
}

// Calls take(vector) for n words and stores the bytes that it makes of them.
template <class Take>
HWY_INLINE void store_bytes_of(const std::uint32_t* words, std::size_t n, std::uint8_t* to, Take take) {
  const WordTag d;
  const std::size_t lanes = word_lanes();
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    store_joined(take(hn::LoadU(d, words + i)), take(hn::LoadU(d, words + i + lanes)),
                 take(hn::LoadU(d, words + i + 2 * lanes)), take(hn::LoadU(d, words + i + 3 * lanes)), to + i);
  }
}

// ---- Taking apart.

struct Scan {
  std::uint32_t any_bits = 0;        // of all words, or-ed
  std::uint32_t differing_bits = 0;  // in which any word differs from the first
};

HWY_INLINE std::uint32_t or_of_lanes(Words v) {
  alignas(64) std::uint32_t lanes[hn::MaxLanes(WordTag())];
  hn::Store(v, WordTag(), lanes);
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < word_lanes(); ++i) all |= lanes[i];
  return all;
}

HWY_INLINE Scan scan_words(const std::uint32_t* words, std::size_t n, std::uint8_t* exponents) {
  const WordTag d;
  std::uint32_t first_word;
  std::memcpy(&first_word, words, sizeof(first_word));
  const Words first = hn::Set(d, first_word);
  Words any = hn::Zero(d);
  Words differing = hn::Zero(d);
  store_bytes_of(words, n, exponents, [&](Words v) HWY_ATTR {
    any = hn::Or(any, v);
    differing = hn::Or(differing, hn::Xor(v, first));
    return hn::ShiftRight<24>(hn::Add(v, v));
  });
  return {or_of_lanes(any), or_of_lanes(differing)};
}

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

struct Rest24 {
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    const WordTag d;
    const ListTag bytes;
    alignas(64) static constexpr BlockIndices kBlocks;
    for (std::size_t i = 0; i < n; i += word_lanes()) {
      const Words turned = hn::RotateRight<31>(hn::LoadU(d, words + i));
      const List closed = hn::TableLookupBytesOr0(hn::BitCast(bytes, turned), hn::LoadDup128(bytes, kCloseThrees));
      if constexpr (hn::MaxLanes(WordTag()) > 4) {
        const auto indices = hn::SetTableIndices(d, kBlocks.close);
        hn::StoreU(hn::BitCast(bytes, hn::TableLookupLanes(hn::BitCast(d, closed), indices)), bytes, to + 3 * i);
      } else {
        hn::StoreU(closed, bytes, to + 3 * i);
      }
    }
  }

  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n,
                             std::uint32_t* words) {
    const WordTag d;
    const ListTag bytes;
    alignas(64) static constexpr BlockIndices kBlocks;
    for (std::size_t i = 0; i < n; i += word_lanes()) {
      List threes = hn::LoadU(bytes, from + 3 * i);
      if constexpr (hn::MaxLanes(WordTag()) > 4) {
        const auto indices = hn::SetTableIndices(d, kBlocks.open);
        threes = hn::BitCast(bytes, hn::TableLookupLanes(hn::BitCast(d, threes), indices));
      }
      const Words low = hn::BitCast(d, hn::TableLookupBytesOr0(threes, hn::LoadDup128(bytes, kOpenThrees)));
      const Words exponent = hn::ShiftLeft<24>(hn::PromoteTo(d, hn::LoadU(NarrowTag(), exponents + i)));
      hn::StoreU(hn::RotateRight<1>(hn::Or(exponent, low)), d, words + i);
    }
  }
};

struct Rest8 {
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    store_bytes_of(words, n, to, [](Words v) HWY_ATTR {
      const Words mantissa = hn::And(hn::ShiftRight<15>(v), hn::Set(WordTag(), 0xFEu));
      return hn::Or(mantissa, hn::ShiftRight<31>(v));
    });
  }

  static HWY_INLINE Words get_vector(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t i) {
    const WordTag d;
    const Words rest = hn::PromoteTo(d, hn::LoadU(NarrowTag(), from + i));
    const Words exponent = hn::PromoteTo(d, hn::LoadU(NarrowTag(), exponents + i));
    const Words sign_and_mantissa = hn::Or(hn::ShiftLeft<31>(rest), hn::ShiftLeft<16>(hn::ShiftRight<1>(rest)));
    return hn::Or(sign_and_mantissa, hn::ShiftLeft<23>(exponent));
  }

  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n,
                             std::uint32_t* words) {
    for (std::size_t i = 0; i < n; i += word_lanes()) {
      hn::StoreU(get_vector(from, exponents, i), WordTag(), words + i);
    }
  }
};

// As Rest8, and three planes for bits 13 to 15.
struct Rest11 {
  static constexpr std::size_t kPlanes = 3;

  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    Rest8::put(words, n, to);
    alignas(64) std::uint8_t bits[kListBytes];
    store_bytes_of(words, n, bits,
                   [](Words v) HWY_ATTR { return hn::And(hn::ShiftRight<13>(v), hn::Set(WordTag(), 7)); });
    std::memset(bits + n, 0, kGroup);
    const ListTag d;
    const std::size_t bytes = lossless::plane_bytes(n);
    for (std::size_t plane = 0; plane < kPlanes; ++plane) {
      const List bit = hn::Set(d, static_cast<std::uint8_t>(1u << plane));
      alignas(64) std::uint8_t mask[kGroups * 8];
      for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
        hn::StoreMaskBits(d, hn::Ne(hn::And(hn::Load(d, bits + i), bit), hn::Zero(d)), mask + i / 8);
      }
      std::memcpy(to + n + plane * bytes, mask, bytes);
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
    alignas(64) std::uint8_t bits[kListBytes];
    const std::uint8_t* planes = from + n;
    const std::size_t bytes = lossless::plane_bytes(n);
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      List all = hn::Zero(d);
      for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        const auto mask = hn::LoadMaskBits(d, planes + plane * bytes + i / 8);
        all = hn::Or(all, hn::IfThenElseZero(mask, hn::Set(d, static_cast<std::uint8_t>(1u << plane))));
      }
      hn::Store(all, d, bits + i);
    }
    for (std::size_t i = 0; i < n; i += word_lanes()) {
      const Words more = hn::PromoteTo(WordTag(), hn::LoadU(NarrowTag(), bits + i));
      hn::StoreU(hn::Or(Rest8::get_vector(from, exponents, i), hn::ShiftLeft<13>(more)), WordTag(), words + i);
    }
  }
};

// ---- Upper halves as they are.

HWY_INLINE void put_upper_halves(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
  const WordTag d;
  const hn::Rebind<std::uint16_t, WordTag> halves;
  alignas(64) std::uint16_t block[lossless::kBlock];
  for (std::size_t i = 0; i < n; i += word_lanes()) {
    hn::StoreU(hn::TruncateTo(halves, hn::ShiftRight<16>(hn::LoadU(d, words + i))), halves, block + i);
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
