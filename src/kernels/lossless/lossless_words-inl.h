// Vectors of lossless.h's words: splitting their bytes and joining them. Per target.

#if defined(QCCL_KERNELS_LOSSLESS_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#undef QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#else
#define QCCL_KERNELS_LOSSLESS_WORDS_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "kernels/lanes/byte_lists.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/lossless/lossless_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

#endif  // include guard
