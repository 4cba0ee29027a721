// The bits of lossless.h's words that are not exponents, and the pass over a block that collects them and everything
// else. Per target.
//
// Arrays of words have whole groups of kGroup. Reads and writes beyond the requested elements are less than
// kLosslessSlack bytes.

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/lossless/lossless_lanes-inl.h"
#include "kernels/lossless/lossless_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Finishes four turned vectors, the words from i on.
template <class Finish>
HWY_INLINE void store_words(const FourVectors& t, float* target, std::size_t i, Finish& finish) {
  const auto value = [](Words v) HWY_ATTR { return hn::BitCast(ValueTag(), turned_back(v)); };
  finish.store(value(t.a), value(t.b), value(t.c), value(t.e), target, i);
}

// ---- The bits that are not exponents. put() writes those of n words; put_four(), called while a whole block is
// scanned, writes those of four turned vectors from word i on; get() makes words of them and of exponents. fetch()
// prefetches the data needed kFetchAhead elements after i.

struct Rest24 {
  static constexpr lossless::Form kForm = lossless::Form::coded_24;

  static HWY_INLINE void fetch(const std::uint8_t* rest, std::size_t i) {
    const std::uint8_t* ahead = rest + 3 * (i + kFetchAhead);
    for (std::size_t at = 0; at < 3 * hn::Lanes(ListTag()); at += 64) hwy::Prefetch(ahead + at);
  }
  static HWY_INLINE void put_four(const FourVectors& t, std::size_t i, std::uint8_t* to) {
    fetch(to, i);
    const std::size_t bytes = 3 * word_lanes();
    store_threes(t.a, to + 3 * i);
    store_threes(t.b, to + 3 * i + bytes);
    store_threes(t.c, to + 3 * i + 2 * bytes);
    store_threes(t.e, to + 3 * i + 3 * bytes);
  }
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    for (std::size_t i = 0; i < n; i += word_lanes()) store_threes(turned(load_words(words + i)), to + 3 * i);
  }
  template <class Finish>
  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n, float* target,
                             Finish& finish) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      fetch(from, i);
      const UpperBytes upper(exponents + i);
      store_words(
          four_from(i, [&](auto vector, std::size_t at)
                           HWY_ATTR { return upper.template with_threes<decltype(vector)::value>(from + 3 * at); }),
          target, i, finish);
    }
  }
};

struct Rest8 {
  static constexpr lossless::Form kForm = lossless::Form::coded_8;

  static HWY_INLINE void fetch(const std::uint8_t* rest, std::size_t i) { hwy::Prefetch(rest + i + kFetchAhead); }
  // Takes turned words.
  static HWY_INLINE Words bits(Words v) {
    const WordTag d;
    return hn::Or(hn::And(hn::ShiftRight<16>(v), hn::Set(d, 0xFEu)), hn::And(v, hn::Set(d, 1u)));
  }
  static HWY_INLINE void put_four(const FourVectors& t, std::size_t i, std::uint8_t* to) {
    fetch(to, i);
    hn::StoreU(t.each([](Words v) HWY_ATTR { return bits(v); }).bytes(), ListTag(), to + i);
  }
  static HWY_INLINE void put(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      put_four(FourVectors::load(words + i).each([](Words v) HWY_ATTR { return turned(v); }), i, to);
    }
  }
  // Returns turned words without exponents.
  static HWY_INLINE Words get_vector(const std::uint8_t* from, std::size_t i) {
    const Words rest = widened(from, i);
    return hn::And(hn::Or(rest, hn::ShiftLeft<16>(rest)), hn::Set(WordTag(), 0x00FE0001u));
  }
  template <class Finish>
  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n, float* target,
                             Finish& finish) {
    for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
      fetch(from, i);
      const UpperBytes upper(exponents + i);
      store_words(
          four_from(i, [&](auto vector, std::size_t at)
                           HWY_ATTR { return upper.template with<decltype(vector)::value>(get_vector(from, at)); }),
          target, i, finish);
    }
  }
};

// Like Rest8, with three more planes for bits 13 to 15.
struct Rest11 {
  static constexpr lossless::Form kForm = lossless::Form::coded_11;
  static constexpr std::size_t kPlanes = 3;

  // Stores bit `plane` of each byte as a mask.
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

  template <class Finish>
  static HWY_INLINE void get(const std::uint8_t* from, const std::uint8_t* exponents, std::size_t n, float* target,
                             Finish& finish) {
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
      Rest8::fetch(from, i);
      const UpperBytes upper(exponents + i);
      store_words(four_from(i,
                            [&](auto vector, std::size_t at) HWY_ATTR {
                              const Words low =
                                  hn::Or(Rest8::get_vector(from, at), hn::ShiftLeft<14>(widened(bits, at - i)));
                              return upper.template with<decltype(vector)::value>(low);
                            }),
                  target, i, finish);
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
  std::uint32_t any_bits = 0;  // of all words, or-ed
  std::uint32_t exponent_sum = 0;
  std::uint32_t nonzero_exponents = 0;

  // The scan without `count` words equal to the first.
  HWY_INLINE Scan without(std::size_t count, std::uint32_t first) const {
    const std::uint32_t exponent = first >> 23 & 0xFFu;
    const auto times = static_cast<std::uint32_t>(count);
    return {any_bits, exponent_sum - times * exponent, nonzero_exponents - (exponent != 0 ? times : 0)};
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

// Number of nonzero bytes among n, whole groups.
HWY_INLINE std::uint32_t count_nonzero(const std::uint8_t* bytes, std::size_t n) {
  const ListTag d;
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    count += hn::CountTrue(d, hn::Ne(hn::Load(d, bytes + i), hn::Zero(d)));
  }
  return static_cast<std::uint32_t>(count);
}

// Stores the exponents of n words, whole groups, and calls also(four turned vectors, i) for each step.
template <class Also>
HWY_INLINE Scan scan_words(const std::uint32_t* words, std::size_t n, std::uint8_t* exponents, Also also) {
  const ListTag bytes;
  const hn::Repartition<std::uint64_t, ListTag> sums;
  Words any = hn::Zero(WordTag());
  auto sum = hn::Zero(sums);
  List least = hn::Set(bytes, 0xFF);
  for (std::size_t i = 0; i < n; i += hn::Lanes(bytes)) {
    for (std::size_t at = 0; at < hn::Lanes(bytes); at += 16) hwy::Prefetch(words + i + kFetchAhead + at);
    const FourVectors v = FourVectors::load(words + i);
    any = hn::Or3(any, v.a, hn::Or3(v.b, v.c, v.e));
    const FourVectors t = v.each([](Words w) HWY_ATTR { return turned(w); });
    const List upper = upper_bytes(t);
    hn::Store(upper, bytes, exponents + i);
    sum = hn::Add(sum, hn::SumsOf8(upper));
    least = hn::Min(least, upper);
    also(t, i);
  }
  const bool all_nonzero = hn::AllTrue(bytes, hn::Ne(least, hn::Zero(bytes)));
  const std::uint32_t nonzero = all_nonzero ? static_cast<std::uint32_t>(n) : count_nonzero(exponents, n);
  return {or_of_lanes(any), sum_of_lanes(sum), nonzero};
}

// ---- Upper halves, unchanged.

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
