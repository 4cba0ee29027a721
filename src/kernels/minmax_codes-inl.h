// How a bucket's codes lie in memory: Codes of 4 (where vectors have 32 bytes), 8 and 16 bits. Per target.
//
// Each: kBits; store() four vectors of codes from element 0 of `to` on, none above D; store_one() and load_one()
// by index, in rising order; Decoder, which turns the codes of one vector into values.

#if defined(QCCL_KERNELS_MINMAX_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_MINMAX_CODES_INL_H_
#undef QCCL_KERNELS_MINMAX_CODES_INL_H_
#else
#define QCCL_KERNELS_MINMAX_CODES_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/minmax_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using ValueTag = hn::ScalableTag<float>;
using IntegerTag = hn::RebindToSigned<ValueTag>;
using UnsignedTag = hn::RebindToUnsigned<ValueTag>;
using Values = hn::Vec<ValueTag>;
using Integers = hn::Vec<IntegerTag>;
using reference::Quantizer;

// Integers of values that are in [0, 65537): without the checks for what does not fit.
HWY_INLINE Integers truncate(Values v) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  return Integers{_mm512_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  return Integers{_mm256_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86
  return Integers{_mm_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(IntegerTag(), v);
#endif
}

// minimum + code * unit, in two roundings.
struct Line {
  Values minimum, unit;
  explicit HWY_INLINE Line(const Quantizer& q)
      : minimum(hn::Set(ValueTag(), q.minimum)), unit(hn::Set(ValueTag(), q.unit)) {}
  HWY_INLINE Values operator()(Integers codes) const {
    return hn::Add(minimum, hn::Mul(hn::ConvertTo(ValueTag(), codes), unit));
  }
};

// A byte each. Where codes are narrower, the caller packs them: D may be below 255.
struct ByteCodes {
  static constexpr int kBits = 8;

#if HWY_ARCH_X86
  using Tag = hn::ScalableTag<std::uint8_t>;

  // Four vectors as bytes, in order, those above D made D.
  static HWY_INLINE hn::Vec<Tag> join(Integers a, Integers b, Integers c, Integers e, std::uint8_t largest) {
#if HWY_MAX_BYTES == 64
    const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, e.raw));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const hn::Vec<Tag> joined{_mm512_permutexvar_epi32(order, bytes)};
#elif HWY_MAX_BYTES == 32
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, e.raw));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const hn::Vec<Tag> joined{_mm256_permutevar8x32_epi32(bytes, order)};
#else
    const hn::Vec<Tag> joined{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, e.raw))};
#endif
    return hn::Min(joined, hn::Set(Tag(), largest));
  }
  static HWY_INLINE void store(Integers a, Integers b, Integers c, Integers e, std::uint32_t largest, std::byte* to) {
    hn::StoreU(join(a, b, c, e, static_cast<std::uint8_t>(largest)), Tag(), reinterpret_cast<std::uint8_t*>(to));
  }
#else
  static HWY_INLINE void store(Integers a, Integers b, Integers c, Integers e, std::uint32_t largest, std::byte* to) {
    const hn::Rebind<std::uint8_t, ValueTag> d;
    const std::size_t lanes = hn::Lanes(d);
    const auto limit = hn::Set(d, static_cast<std::uint8_t>(largest));
    auto* bytes = reinterpret_cast<std::uint8_t*>(to);
    hn::StoreU(hn::Min(hn::DemoteTo(d, a), limit), d, bytes);
    hn::StoreU(hn::Min(hn::DemoteTo(d, b), limit), d, bytes + lanes);
    hn::StoreU(hn::Min(hn::DemoteTo(d, c), limit), d, bytes + 2 * lanes);
    hn::StoreU(hn::Min(hn::DemoteTo(d, e), limit), d, bytes + 3 * lanes);
  }
#endif
  static void store_one(std::byte* codes, std::size_t index, std::uint32_t code) {
    codes[index] = static_cast<std::byte>(code);
  }
  static std::uint32_t load_one(const std::byte* codes, std::size_t index) {
    return std::to_integer<std::uint32_t>(codes[index]);
  }

  struct Decoder {
    Line line;
    explicit HWY_INLINE Decoder(const Quantizer& q) : line(q) {}
    HWY_INLINE Values operator()(const std::byte* codes, std::size_t index) const {
      const hn::Rebind<std::uint8_t, ValueTag> d;
      const auto bytes = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(codes) + index);
      return line(hn::PromoteTo(IntegerTag(), bytes));
    }
  };
};

struct WordCodes {
  static constexpr int kBits = 16;
  using Tag = hn::Rebind<std::uint16_t, ValueTag>;

  // Demoting makes what is above D, 65535, D.
  static HWY_INLINE void store(Integers a, Integers b, Integers c, Integers e, std::uint32_t, std::byte* to) {
    const Tag d;
    const std::size_t lanes = hn::Lanes(d);
    auto* words = reinterpret_cast<std::uint16_t*>(to);
    hn::StoreU(hn::DemoteTo(d, a), d, words);
    hn::StoreU(hn::DemoteTo(d, b), d, words + lanes);
    hn::StoreU(hn::DemoteTo(d, c), d, words + 2 * lanes);
    hn::StoreU(hn::DemoteTo(d, e), d, words + 3 * lanes);
  }
  static void store_one(std::byte* codes, std::size_t index, std::uint32_t code) {
    std::memcpy(codes + 2 * index, &code, 2);
  }
  static std::uint32_t load_one(const std::byte* codes, std::size_t index) {
    std::uint32_t code = 0;
    std::memcpy(&code, codes + 2 * index, 2);
    return code;
  }

  struct Decoder {
    Line line;
    explicit HWY_INLINE Decoder(const Quantizer& q) : line(q) {}
    HWY_INLINE Values operator()(const std::byte* codes, std::size_t index) const {
      const Tag d;
      const auto words = hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(codes) + index);
      return line(hn::PromoteTo(IntegerTag(), words));
    }
  };
};

#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
// Two codes a byte, the first in the lower half. Runs start at even elements.
struct NibbleCodes {
  static constexpr int kBits = 4;

  static HWY_INLINE void store(Integers a, Integers b, Integers c, Integers e, std::uint32_t largest, std::byte* to) {
    const hn::ScalableTag<std::uint16_t> pairs;
    const auto bytes = ByteCodes::join(a, b, c, e, static_cast<std::uint8_t>(largest));
    const auto pair = hn::BitCast(pairs, bytes);
    const auto joined = hn::Or(pair, hn::ShiftRight<4>(pair));
    const hn::Rebind<std::uint8_t, decltype(pairs)> d;
    hn::StoreU(hn::TruncateTo(d, joined), d, reinterpret_cast<std::uint8_t*>(to));
  }
  static void store_one(std::byte* codes, std::size_t index, std::uint32_t code) {
    const auto nibble = static_cast<std::byte>(code);
    codes[index / 2] = index % 2 == 0 ? nibble : codes[index / 2] | nibble << 4;
  }
  static std::uint32_t load_one(const std::byte* codes, std::size_t index) {
    return std::to_integer<std::uint32_t>(codes[index / 2]) >> (index % 2 * 4) & 15u;
  }

#if HWY_MAX_BYTES == 64
  // All sixteen values that a code can have are one vector.
  struct Decoder {
    __m512 table;
    explicit HWY_INLINE Decoder(const Quantizer& q) : table(Line(q)(hn::Iota(IntegerTag(), 0)).raw) {}
    HWY_INLINE Values operator()(const std::byte* codes, std::size_t index) const {
      const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
      const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
      const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + index / 2));
      const __m512i spread = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(packed));
      return Values{_mm512_permutexvar_ps(_mm512_srlv_epi32(spread, shifts), table)};
    }
  };
#else
  struct Decoder {
    Line line;
    explicit HWY_INLINE Decoder(const Quantizer& q) : line(q) {}
    HWY_INLINE Values operator()(const std::byte* codes, std::size_t index) const {
      std::uint32_t packed = 0;
      std::memcpy(&packed, codes + index / 2, sizeof(packed));
      const UnsignedTag d;
      const auto shifted = hn::Shr(hn::Set(d, packed), hn::ShiftLeft<2>(hn::Iota(d, 0)));
      return line(hn::BitCast(IntegerTag(), hn::And(shifted, hn::Set(d, 15))));
    }
  };
#endif
};
#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
