// The vectors of lossless.h: the levels of exponents, and words. Per target.

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/lossless/lossless_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Levels: lists of exponents to bit planes of codes and shorter lists, and back.

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

// Tables for taking the bytes that a mask selects among eight out of a list, and putting them back.

using ByteIndices = std::array<std::array<std::uint8_t, 8>, 256>;

// [mask][i]: the index of the i-th byte selected by the mask, among eight; 0x80 past the last.
constexpr ByteIndices make_compact_indices() {
  ByteIndices indices{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    indices[mask].fill(0x80);
    std::size_t count = 0;
    for (unsigned at = 0; at < 8; ++at) {
      if ((mask >> at & 1u) != 0) indices[mask][count++] = static_cast<std::uint8_t>(at);
    }
  }
  return indices;
}

// The reverse, [mask][i]: the index of the selected byte that belongs at i; 0x80 where the mask has no bit.
constexpr ByteIndices make_spread_indices() {
  ByteIndices indices{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    std::uint8_t count = 0;
    for (unsigned at = 0; at < 8; ++at) indices[mask][at] = (mask >> at & 1u) != 0 ? count++ : 0x80;
  }
  return indices;
}

inline constexpr ByteIndices kCompactIndices = make_compact_indices();
inline constexpr ByteIndices kSpreadIndices = make_spread_indices();

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

// ---- Words: splitting their bytes and joining them.

using WordTag = hn::Repartition<std::uint32_t, ListTag>;
using Words = hn::Vec<WordTag>;
using NarrowTag = hn::Rebind<std::uint8_t, WordTag>;  // one byte per word

HWY_INLINE std::size_t word_lanes() { return hn::Lanes(WordTag()); }

HWY_INLINE Words load_words(const std::uint32_t* words) { return hn::LoadU(WordTag(), words); }

// One byte per word, from i on, widened to words.
HWY_INLINE Words widened(const std::uint8_t* bytes, std::size_t i) {
  return hn::PromoteTo(WordTag(), hn::LoadU(NarrowTag(), bytes + i));
}

// Moves a word's exponent to the top and its sign to the bottom, and back.
HWY_INLINE Words turned(Words v) { return hn::RotateRight<31>(v); }
HWY_INLINE Words turned_back(Words v) { return hn::RotateRight<1>(v); }

// Four vectors of words below 256 as bytes, in order.
HWY_INLINE List joined(Words a, Words b, Words c, Words e) {
#if HWY_ARCH_X86
  const auto packed = [](Words x, Words y)
                          HWY_ATTR { return pack_words(hn::BitCast(IntegerTag(), x), hn::BitCast(IntegerTag(), y)); };
  return in_order(pack_unsigned(packed(a, b), packed(c, e)));
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

// Four consecutive vectors of words; one byte of each word fills one vector.
struct FourVectors {
  Words a, b, c, e;

  static HWY_INLINE FourVectors load(const std::uint32_t* words) {
    const std::size_t lanes = word_lanes();
    return {load_words(words), load_words(words + lanes), load_words(words + 2 * lanes), load_words(words + 3 * lanes)};
  }
  // Applies op() to each vector.
  template <class Op>
  HWY_INLINE FourVectors each(Op op) const {
    return {op(a), op(b), op(c), op(e)};
  }
  HWY_INLINE List bytes() const { return joined(a, b, c, e); }
};

// ---- Code that depends on byte permutes: the top byte of turned words, and the three others.

#if QCCL_HAS_BYTE_COMPRESS

// Indices for vpermb. `upper[q]` moves the words' top bytes to bytes 16 q and on, `to_upper[q]` does the reverse;
// `close` and `open` are like the blocks below, for the whole vector.
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

// The top bytes of kGroup words, to be joined with the three others of each.
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

// Like kCloseThrees and kOpenThrees, for the words of 128-bit blocks among those of a vector of kLanes.
template <int kLanes>
struct BlockIndices {
  alignas(64) std::int32_t close[16] = {};
  alignas(64) std::int32_t open[16] = {};
  constexpr BlockIndices() {
    for (int i = 0; i < 16; ++i) {
      close[i] = (i < 12 ? i / 3 * 4 + i % 3 : 3) % kLanes;
      open[i] = (i % 4 < 3 ? i / 4 * 3 + i % 4 : 0) % kLanes;
    }
  }
};
alignas(64) inline constexpr BlockIndices<static_cast<int>(hn::MaxLanes(WordTag()))> kBlocks;

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

// The four vectors that make(vector number, index of its first word) returns for the words from i on.
template <class Make>
HWY_INLINE FourVectors four_from(std::size_t i, Make make) {
  return {make(std::integral_constant<std::size_t, 0>(), i),
          make(std::integral_constant<std::size_t, 1>(), i + word_lanes()),
          make(std::integral_constant<std::size_t, 2>(), i + 2 * word_lanes()),
          make(std::integral_constant<std::size_t, 3>(), i + 3 * word_lanes())};
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
