// The levels of lossless.h: lists of exponents to bit planes of codes and shorter lists, and back. Per target.

#if defined(QCCL_KERNELS_LOSSLESS_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_LOSSLESS_LEVELS_INL_H_
#undef QCCL_KERNELS_LOSSLESS_LEVELS_INL_H_
#else
#define QCCL_KERNELS_LOSSLESS_LEVELS_INL_H_
#endif

#include <bit>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/lanes/byte_lists.h"
#include "kernels/lossless/lossless_rule.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lists are processed 64 elements at a time and have room for as many beyond their end.
inline constexpr std::size_t kGroup = 64;
inline constexpr std::size_t kGroups = lossless::kBlock / kGroup;
inline constexpr std::size_t kListBytes = lossless::kBlock + kGroup;

constexpr std::size_t groups_of(std::size_t n) { return (n + kGroup - 1) / kGroup; }

using ListTag = hn::CappedTag<std::uint8_t, HWY_ARCH_X86 ? kGroup : 16>;
using List = hn::Vec<ListTag>;

// Whether byte compress and expand are instructions.
#define QCCL_HAS_BYTE_COMPRESS (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL)

HWY_INLINE void fill_group(std::uint8_t value, std::uint8_t* to) {
  const ListTag d;
  for (std::size_t i = 0; i < kGroup; i += hn::Lanes(d)) hn::StoreU(hn::Set(d, value), d, to + i);
}

// A level's codes: bit i of each plane belongs to element i.
struct Planes {
  alignas(64) std::uint64_t low[kGroups];
  alignas(64) std::uint64_t high[kGroups];
};

#if QCCL_HAS_BYTE_COMPRESS

// Codes n bytes; writes those without a symbol to `rest` and returns their number. The list is filled up with a symbol
// of code 0 to a multiple of kGroup.
HWY_INLINE std::size_t split_level(const std::uint8_t* list, std::size_t n, const lossless::Symbols& symbols,
                                   Planes& planes, std::uint8_t* rest) {
  const __m512i s0 = _mm512_set1_epi8(static_cast<char>(symbols[0]));
  const __m512i s1 = _mm512_set1_epi8(static_cast<char>(symbols[1]));
  const __m512i s2 = _mm512_set1_epi8(static_cast<char>(symbols[2]));
  std::size_t count = 0;
  for (std::size_t g = 0; g < groups_of(n); ++g) {
    const __m512i v = _mm512_load_si512(list + g * kGroup);
    const __mmask64 not0 = _mm512_cmpneq_epi8_mask(v, s0);
    const __mmask64 low = _mm512_mask_cmpneq_epi8_mask(not0, v, s2);
    const __mmask64 high = _mm512_mask_cmpneq_epi8_mask(not0, v, s1);
    const __mmask64 none = _kand_mask64(low, high);
    planes.low[g] = low;
    planes.high[g] = high;
    _mm512_storeu_si512(rest + count, _mm512_maskz_compress_epi8(none, v));
    count += static_cast<std::size_t>(std::popcount(low & high));
  }
  return count;
}

// The reverse: the bytes of n codes. `rest` is readable for kGroup bytes from any of its elements on; so are the
// planes.
HWY_INLINE void join_level(const std::byte* low_plane, const std::byte* high_plane, std::size_t n,
                           const lossless::Symbols& symbols, const std::uint8_t* rest, std::uint8_t* list) {
  const __m512i s0 = _mm512_set1_epi8(static_cast<char>(symbols[0]));
  const __m512i s1 = _mm512_set1_epi8(static_cast<char>(symbols[1]));
  const __m512i s2 = _mm512_set1_epi8(static_cast<char>(symbols[2]));
  for (std::size_t g = 0; g < groups_of(n); ++g) {
    std::uint64_t low, high;
    std::memcpy(&low, low_plane + g * 8, 8);
    std::memcpy(&high, high_plane + g * 8, 8);
    __m512i v = _mm512_mask_mov_epi8(s0, low, s1);
    v = _mm512_mask_mov_epi8(v, high, s2);
    v = _mm512_mask_expand_epi8(v, low & high, _mm512_loadu_si512(rest));
    _mm512_store_si512(list + g * kGroup, v);
    rest += std::popcount(low & high);
  }
}

#else

using EightTag = hn::CappedTag<std::uint8_t, 16>;

HWY_INLINE hn::Vec<EightTag> load_eight(const std::uint8_t* from) {
  const hn::Repartition<std::uint64_t, EightTag> d;
  std::uint64_t eight;
  std::memcpy(&eight, from, 8);
  return hn::BitCast(EightTag(), hn::Set(d, eight));
}

HWY_INLINE hn::Vec<hn::Repartition<std::uint64_t, EightTag>> looked_up(hn::Vec<EightTag> bytes,
                                                                       const std::array<std::uint8_t, 8>& indices) {
  const hn::Repartition<std::uint64_t, EightTag> d;
  return hn::BitCast(d, hn::TableLookupBytesOr0(bytes, load_eight(indices.data())));
}

HWY_INLINE std::size_t split_level(const std::uint8_t* list, std::size_t n, const lossless::Symbols& symbols,
                                   Planes& planes, std::uint8_t* rest) {
  const ListTag d;
  const List s0 = hn::Set(d, symbols[0]), s1 = hn::Set(d, symbols[1]), s2 = hn::Set(d, symbols[2]);
  auto* low = reinterpret_cast<std::uint8_t*>(planes.low);
  auto* high = reinterpret_cast<std::uint8_t*>(planes.high);
  for (std::size_t i = 0; i < groups_of(n) * kGroup; i += hn::Lanes(d)) {
    const List v = hn::Load(d, list + i);
    const auto is0 = hn::Eq(v, s0);
    hn::StoreMaskBits(d, hn::Not(hn::Or(is0, hn::Eq(v, s2))), low + i / 8);
    hn::StoreMaskBits(d, hn::Not(hn::Or(is0, hn::Eq(v, s1))), high + i / 8);
  }
  std::size_t count = 0;
  for (std::size_t g = 0; g < lossless::plane_bytes(n); ++g) {
    const unsigned none = low[g] & high[g];
    const std::uint64_t taken = hn::GetLane(looked_up(load_eight(list + g * 8), kCompactIndices[none]));
    std::memcpy(rest + count, &taken, 8);
    count += static_cast<std::size_t>(std::popcount(none));
  }
  return count;
}

HWY_INLINE void join_level(const std::byte* low_plane, const std::byte* high_plane, std::size_t n,
                           const lossless::Symbols& symbols, const std::uint8_t* rest, std::uint8_t* list) {
  const ListTag d;
  const List s0 = hn::Set(d, symbols[0]), s1 = hn::Set(d, symbols[1]), s2 = hn::Set(d, symbols[2]);
  const auto* low = reinterpret_cast<const std::uint8_t*>(low_plane);
  const auto* high = reinterpret_cast<const std::uint8_t*>(high_plane);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto is_low = hn::LoadMaskBits(d, low + i / 8);
    const auto is_high = hn::LoadMaskBits(d, high + i / 8);
    const List not_low = hn::IfThenElse(is_high, s2, s0);
    hn::Store(hn::IfThenElse(is_low, hn::IfThenZeroElse(is_high, s1), not_low), d, list + i);
  }
  // A list has room for a whole vector, and planes may be read beyond their end: the extra bytes land beyond the list's
  // end.
  for (std::size_t g = 0; g < lossless::plane_bytes(n); g += 2) {
    const unsigned first = low[g] & high[g], second = low[g + 1] & high[g + 1];
    const auto lower = looked_up(load_eight(rest), kSpreadIndices[first]);
    rest += std::popcount(first);
    const auto upper = looked_up(load_eight(rest), kSpreadIndices[second]);
    rest += std::popcount(second);
    const EightTag sixteen;
    const auto both = hn::BitCast(sixteen, hn::InterleaveLower(lower, upper));
    hn::Store(hn::Or(hn::Load(sixteen, list + g * 8), both), sixteen, list + g * 8);
  }
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
