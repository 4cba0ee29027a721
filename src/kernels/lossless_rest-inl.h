// The bits of lossless.h's words that are not exponents, and the pass over a block that brings them and all else to
// light. Per target.
//
// Arrays of words have whole groups of kGroup; what is written or read beyond the elements asked for is less than
// kLosslessSlack bytes.

#if defined(QCCL_KERNELS_LOSSLESS_REST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_LOSSLESS_REST_INL_H_
#undef QCCL_KERNELS_LOSSLESS_REST_INL_H_
#else
#define QCCL_KERNELS_LOSSLESS_REST_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/lossless_levels-inl.h"
#include "kernels/lossless_rule.h"
#include "kernels/lossless_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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
