// Encoding blocks of h4.h in vectors. Per target, x86.
//
// Bits of an element's index e, from the highest: r3 r2 r1 r0 l3 l2 l1 l0 (row, lane). 16 bits an element: words of
// rows 2 k and 2 k + 1 are joined, and a word lies in
//
//   register r3 r2 r1 (and l3 and l2, if vectors are narrow), block of 128 bits l3 l2, word r0 l1 l0
//
// The butterflies that exchange them turn that into registers r0 l2 l3, blocks r3 r2, words r1 l1 l0. Joining the two
// registers of l3 to bytes then gives the order of codes: byte r3 r2 l3 r1 l1 l0 of field (l2, r0).

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// A block's words: by the field of their code, by l3, and by part of the 64 words that have both.
struct Coefficients {
  Words at[4][2][kParts];
};

HWY_INLINE Dwords rounded(Floats v) {
  return Dwords{QCCL_X86(cvtps_epi32)(v.raw)};  // in range: no need for the checks of NearestInt
}

template <class Term>
HWY_INLINE float lane_sum(const float* v, Term term) {
  const FloatTag d;
  Floats lanes[kParts];
  HWY_UNROLL(4)
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto column = [&](std::size_t k) HWY_ATTR {
      const float* at = v + 16 * k + part * hn::Lanes(d);
      Floats sum = hn::Add(term(hn::LoadU(d, at)), term(hn::LoadU(d, at + 64)));
      sum = hn::Add(sum, term(hn::LoadU(d, at + 128)));
      return hn::Add(sum, term(hn::LoadU(d, at + 192)));
    };
    lanes[part] = hn::Add(hn::Add(column(0), column(1)), hn::Add(column(2), column(3)));
  }
#if HWY_MAX_BYTES == 64
  const hn::Half<FloatTag> half;
  const auto eight = hn::Add(hn::LowerHalf(half, lanes[0]), hn::UpperHalf(half, lanes[0]));
#elif HWY_MAX_BYTES == 32
  const auto eight = hn::Add(lanes[0], lanes[1]);
#endif
  const hn::FixedTag<float, 4> quarter;
#if HWY_MAX_BYTES >= 32
  const auto four = hn::Add(hn::LowerHalf(quarter, eight), hn::UpperHalf(quarter, eight));
#else
  const auto four = hn::Add(hn::Add(lanes[0], lanes[2]), hn::Add(lanes[1], lanes[3]));
#endif
  const auto two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}

template <int kB>
class H4Encoder {
 public:
  static constexpr int kBits = kB;

  explicit HWY_INLINE H4Encoder(std::uint32_t seed) {
    const DwordTag d;
    Dwords even[kParts];
    each_sign_row(seed, [&](int row, std::size_t part, Dwords negative) HWY_ATTR {
      const Dwords sign = hn::Or(negative, hn::Set(d, 1));
      if (row % 2 == 0) even[part] = sign;
      if (row % 2 == 1) {
        hn::Store(join_words(even[part], sign), WordTag(), signs_ + 16 * (row - 1) + part * hn::Lanes(WordTag()));
      }
    });
  }

  HWY_INLINE float sum(const float* v) const {
    return lane_sum(v, [](Floats x) HWY_ATTR { return hn::Abs(x); });
  }

  HWY_NOINLINE float fourths(const float* v, float factor) const {
    const Floats factors = hn::Set(FloatTag(), factor);
    return lane_sum(v, [=](Floats x) HWY_ATTR {
      const Floats scaled = hn::Mul(x, factors);
      const Floats square = hn::Mul(scaled, scaled);
      return hn::Mul(square, square);
    });
  }

  HWY_INLINE H4Moments encode(const float* v, float factor, int row, std::byte* codes) const {
    Coefficients z;
    H4Moments moments{.squares = transform(v, factor, row, z)};
    const auto m = static_cast<std::int16_t>(
        hn::GetLane(rounded(hn::Set(FloatTag(), reference::h4_cells_factor(moments.squares)))));
    Fit fit;
    CodeBytes bytes;
    HWY_UNROLL(4)
    for (int field = 0; field < 4; ++field) {
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) {
        bytes.at[field][part] = fit.take(z.at[field][0][part], z.at[field][1][part], hn::Set(WordTag(), m));
      }
    }
    store_codes<kBits>(bytes, codes);
    moments.product = hn::GetLane(hn::SumOfLanes(DwordTag(), fit.product));
    moments.levels = hn::GetLane(hn::SumOfLanes(DwordTag(), fit.levels));
    return moments;
  }

  // Writes the coefficients in element order.
  HWY_NOINLINE void transform(const float* v, float factor, int row, float* z) const {
    Coefficients coefficients;
    transform(v, factor, row, coefficients);
    std::int16_t words[4][2][kParts][64 / kParts / 2];
    std::memcpy(words, &coefficients, sizeof(words));
    for (std::size_t e = 0; e < kH4Block; ++e) {
      const auto bit = [=](int from, int to) { return (e >> from & 1) << to; };
      const std::size_t word = bit(0, 0) | bit(1, 1) | bit(5, 2) | bit(6, 3) | bit(7, 4);
      const std::size_t lanes = hn::Lanes(WordTag());
      z[e] = words[bit(4, 0) | bit(2, 1)][bit(3, 0)][word / lanes][word % lanes];
    }
  }

 private:
  // The sums from which the scale is computed.
  struct Fit {
    Dwords product, levels;
    HWY_INLINE Fit() : product(hn::Zero(DwordTag())), levels(hn::Zero(DwordTag())) {}

    // The codes of the words of `lower` and `upper`.
    HWY_INLINE Bytes take(Words lower, Words upper, Words m) {
      const ByteTag d;
      const hn::RebindToSigned<ByteTag> s;
      alignas(16) static constexpr auto kOffsets = reference::h4_cell_offsets(kBits);
      alignas(16) static constexpr auto kLevels = reference::h4_levels(kBits);
      const Bytes t = join_bytes(hn::MulHigh(lower, m), hn::MulHigh(upper, m));
      const Bytes negative = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(s, t)));
      const Bytes cell = hn::Xor(t, negative);
      const Bytes offset = hn::TableLookupBytes(hn::LoadDup128(d, kOffsets.data()), bits_of<15, -3>(cell));
      const Bytes magnitude = bits_of<7, -3>(hn::Add(cell, offset));
      const Bytes code = hn::OrAnd(magnitude, negative, hn::Set(d, 1 << (kBits - 1)));
      const auto level = hn::TableLookupBytes(hn::LoadDup128(s, kLevels.data()), hn::BitCast(s, code));
      const Words lower_level = hn::BitCast(WordTag(), hn::InterleaveLower(d, hn::BitCast(d, level), negative));
      const Words upper_level = hn::BitCast(WordTag(), hn::InterleaveUpper(d, hn::BitCast(d, level), negative));
      product = hn::Add(product, hn::Add(pair_products(lower, lower_level), pair_products(upper, upper_level)));
      const Bytes size = hn::BitCast(d, hn::Abs(level));
      levels = hn::Add(levels, pair_products(byte_pair_products(size, size), hn::Set(WordTag(), 1)));
      return code;
    }
  };

  // Transforms q with its signs; returns the sum of q^2.
  HWY_INLINE std::int32_t transform(const float* v, float factor, int row, Coefficients& z) const {
    Words w[8][kParts];
    const std::int32_t squares = load(v, factor, signs_ + 16 * row, w);
    HWY_UNROLL(3)
    for (std::size_t bit = 1; bit < 8; bit *= 2) {  // r1 r2 r3
      HWY_UNROLL(8)
      for (std::size_t i = 0; i < 8; ++i) {
        HWY_UNROLL(4)
        for (std::size_t part = 0; part < kParts && (i & bit) == 0; ++part) butterfly(w[i][part], w[i | bit][part]);
      }
    }
    over_blocks(w);
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < 8; i += 2) {  // r0
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) butterfly_qwords(w[i][part], w[i + 1][part]);
    }
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {  // l1 l0
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) {
        const std::size_t field = (i & 1) | (kParts == 4 ? part & 1 : i >> 1 & 1) << 1;
        const std::size_t l3 = kParts == 1 ? i >> 2 : kParts == 2 ? part : part >> 1;
        const std::size_t to = kParts == 1 ? 0 : kParts == 2 ? i >> 2 : (i >> 2) << 1 | (i >> 1 & 1);
        z.at[field][l3][to] = transform_quads(w[i][part]);
      }
    }
    return squares;
  }

  static HWY_INLINE std::int32_t load(const float* v, float factor, const std::int16_t* signs, Words (&w)[8][kParts]) {
    const FloatTag f;
    const WordTag d;
    const Floats factors = hn::Set(f, factor);
    Dwords squares = hn::Zero(DwordTag());
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) {
        const float* at = v + 32 * i + part * hn::Lanes(f);
        const Dwords even = rounded(hn::Mul(hn::LoadU(f, at), factors));
        const Dwords odd = rounded(hn::Mul(hn::LoadU(f, at + 16), factors));
        const Words q = join_words(even, odd);
        squares = hn::Add(squares, pair_products(q, q));
        w[i][part] = hn::Mul(q, hn::Load(d, signs + 32 * i + part * hn::Lanes(d)));
      }
    }
    return hn::GetLane(hn::SumOfLanes(DwordTag(), squares));
  }

  // The butterflies over l2 and l3: between registers if vectors are narrow; over r2 and r3 if vectors have several
  // blocks.
  static HWY_INLINE void over_blocks(Words (&w)[8][kParts]) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      HWY_UNROLL(2)
      for (std::size_t part = 0; part < kParts / 2; ++part) butterfly(w[i][part], w[i][part + kParts / 2]);  // l3
      if constexpr (kParts == 4) {
        butterfly(w[i][0], w[i][1]);
        butterfly(w[i][2], w[i][3]);
      }
    }
#if HWY_MAX_BYTES >= 32
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      HWY_UNROLL(2)
      for (std::size_t part = 0; part < kParts && (i & 2) == 0; ++part) butterfly_blocks(w[i][part], w[i | 2][part]);
    }
#endif
#if HWY_MAX_BYTES == 64
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < 4; ++i) butterfly_blocks(w[i][0], w[i | 4][0]);
#endif
  }

  // +-1, joined like the words in load().
  alignas(64) std::int16_t signs_[16 * reference::kH4SignRows];
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
