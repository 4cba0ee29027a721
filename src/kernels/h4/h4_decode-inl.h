// Decoding blocks of h4.h in vectors. Per target, x86.
//
// Reverses h4_encode-inl.h. Levels are bytes of 127 + level; the sums over quads of neighbours widen them to words. The
// last butterfly, the signs and the widening to 32 bits are one multiplication of pairs by (1, 1) or (1, -1) or their
// negatives. Everything is exact: a sum of 256 levels has 15 bits, and its product with a scale of 8 bits fits a
// float32, so that the addition may be fused with the product.

#include "hwy/highway.h"
#include "kernels/h4/h4_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Results from exact sums.

HWY_INLINE Floats finished(H4Assign, Floats sums, Floats scale, std::size_t) { return hn::Mul(sums, scale); }
HWY_INLINE Floats finished(H4Add add, Floats sums, Floats scale, std::size_t at) {
  return hn::MulAdd(sums, scale, hn::LoadU(FloatTag(), add.addend + at));
}

// Tracks whether all results so far are numbers.
#if HWY_MAX_BYTES == 64
class NumberWatch {
 public:
  HWY_INLINE void see(Floats a, Floats b) { ordered_ = _mm512_mask_cmp_ps_mask(ordered_, a.raw, b.raw, _CMP_ORD_Q); }
  HWY_INLINE bool all_numbers() const { return ordered_ == 0xFFFF; }

 private:
  __mmask16 ordered_ = 0xFFFF;
};
#else
class NumberWatch {
 public:
  HWY_INLINE NumberWatch() : unordered_(hn::Zero(FloatTag())) {}
  HWY_INLINE void see(Floats a, Floats b) {
#if HWY_MAX_BYTES == 32
    unordered_ = hn::Or(unordered_, Floats{_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)});
#else
    unordered_ = hn::Or(unordered_, Floats{_mm_cmpunord_ps(a.raw, b.raw)});
#endif
  }
  HWY_INLINE bool all_numbers() const {
    const hn::RebindToSigned<FloatTag> d;
    return hn::AllTrue(d, hn::Eq(hn::BitCast(d, unordered_), hn::Zero(d)));
  }

 private:
  Floats unordered_;
};
#endif

// ---- Blocks.

template <int kB>
class H4Decoder {
 public:
  static constexpr int kBits = kB;

  explicit HWY_INLINE H4Decoder(std::uint32_t seed) {
    const DwordTag d;
    each_sign_row(seed, [&](int row, std::size_t part, Dwords negative) HWY_ATTR {
      const Dwords pair = hn::Set(d, row % 2 == 0 ? 0x00010001 : static_cast<std::int32_t>(0xFFFF0001));
      const Dwords signs = hn::Xor(pair, hn::And(negative, hn::Set(d, static_cast<std::int32_t>(0xFFFEFFFE))));
      hn::Store(signs, d, signs_ + 16 * row + part * hn::Lanes(d));
    });
  }

  // `finish` and `target` are those of the block's first element. False if a result is NaN.
  template <class Finish>
  HWY_INLINE bool decode(const std::byte* codes, int row, float scale, Finish finish, float* target) const {
    const Floats scales = hn::Set(FloatTag(), scale);
    NumberWatch watch;
    each_pair(codes, row, [&](Floats even, Floats odd, std::size_t at) HWY_ATTR {
      even = finished(finish, even, scales, at);
      odd = finished(finish, odd, scales, at + 16);
      hn::StoreU(even, FloatTag(), target + at);
      hn::StoreU(odd, FloatTag(), target + at + 16);
      if constexpr (std::is_same_v<Finish, H4Add>) watch.see(even, odd);
    });
    return watch.all_numbers();
  }

  HWY_NOINLINE void sums(const std::byte* codes, int row, float* sums) const {
    each_pair(codes, row, [=](Floats even, Floats odd, std::size_t at) HWY_ATTR {
      hn::StoreU(even, FloatTag(), sums + at);
      hn::StoreU(odd, FloatTag(), sums + at + 16);
    });
  }

  // Exact, because all values are whole numbers below 2^24.
  HWY_NOINLINE void transform(float* sums, int row) const {
    quads(sums);
    stage<4>(sums);
    stage<8>(sums);
    stage<16>(sums);
    stage<32>(sums);
    stage<64>(sums);
    stage<128>(sums);
    const FloatTag d;
    const DwordTag i;
    for (std::size_t at = 0; at < kH4Block; at += hn::Lanes(d)) {
      // The lower word of a pair of signs is the element's own.
      const Dwords signs = hn::ShiftLeft<16>(hn::LoadU(i, signs_ + 16 * row + at));
      const Floats x = hn::Load(d, sums + at);
      hn::Store(
          hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(signs))), hn::Sub(hn::Zero(d), x), x), d,
          sums + at);
    }
  }

 private:
  using RowWords = Words[8][kParts];

  // For all pairs of rows, calls use(even, odd, at) with the sums of elements from `at` and from `at` + 16 on.
  template <class Use>
  HWY_INLINE void each_pair(const std::byte* codes, int row, Use use) const {
    const FloatTag f;
    RowWords w;
    load(codes, w);
    over_words(w);
    const std::int32_t* signs = signs_ + 16 * row;
    const auto product = [&](Words v, std::size_t at) HWY_ATTR {
      const hn::Repartition<std::int16_t, DwordTag> d;
      return hn::ConvertTo(f, pair_products(v, hn::BitCast(d, hn::Load(DwordTag(), signs + at))));
    };
    HWY_UNROLL(8)
    for (std::size_t pair = 0; pair < 8; ++pair) {
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) {
        const Words& v = register_of(w, pair, part);
        const std::size_t at = 32 * pair + part * hn::Lanes(f);
        use(product(v, at), product(v, at + 16), at);
      }
    }
  }

  // The register of a pair of rows (r3 r2 r1) and a part of their lanes (l3 l2, if there is more than one part).
  static HWY_INLINE const Words& register_of(const RowWords& w, std::size_t pair, std::size_t part) {
    const std::size_t r1 = pair & 1, r2 = pair >> 1 & 1, r3 = pair >> 2;
    if constexpr (kParts == 1) return w[r3 | r1 << 1 | r2 << 2][0];
    if constexpr (kParts == 2) return w[r1 | part << 1 | r2 << 2][r3];
    return w[r1 | (part >> 1) << 1 | (part & 1) << 2][r3 << 1 | r2];
  }

  // Loads the quads' sums. Registers: b3 (512 bits) or b0, then the lower and the upper bit of the field.
  static HWY_INLINE void load(const std::byte* codes, RowWords& w) {
    const ByteTag d;
    alignas(16) static constexpr auto kLevels = [] {
      std::array<std::uint8_t, 16> levels{};
      for (std::size_t i = 0; i < 16; ++i) levels[i] = static_cast<std::uint8_t>(127 + reference::h4_levels(kBits)[i]);
      return levels;
    }();
    CodeBytes bytes;
    load_codes<kBits>(codes, bytes);
    HWY_UNROLL(4)
    for (std::size_t field = 0; field < 4; ++field) {
      HWY_UNROLL(4)
      for (std::size_t part = 0; part < kParts; ++part) {
        quads(hn::TableLookupBytes(hn::LoadDup128(d, kLevels.data()), bytes.at[field][part]), w[2 * field][part],
              w[2 * field + 1][part]);
      }
    }
  }

#if HWY_MAX_BYTES == 64
  // A quad and its repetition, from each of its bytes on, times (254 0 0 0): the sum of the other three's levels minus
  // its own, plus 4 * 127.
  static constexpr int kQuadOffset = 4 * 127;
  static HWY_INLINE void quads(Bytes levels, Words& lower, Words& upper) {
    const __m512i own = _mm512_set1_epi32(254);
    lower = Words{_mm512_dbsad_epu8(own, levels.raw, 0x50)};
    upper = Words{_mm512_dbsad_epu8(own, levels.raw, 0xFA)};
  }
#else
  // Like transform_quads(), plus 2 * 127; the first and third, the second and fourth.
  static constexpr int kQuadOffset = 2 * 127;
  static HWY_INLINE void quads(Bytes levels, Words& lower, Words& upper) {
    const ByteTag d;
    alignas(16) static constexpr std::uint8_t kSwap[16] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
    const Bytes swapped = hn::TableLookupBytes(levels, hn::LoadDup128(d, kSwap));
    const Words sums = byte_pair_products(swapped, hn::Set(d, 1));
    const Words differences =
        byte_pair_products(levels, hn::BitCast(d, hn::Set(WordTag(), static_cast<std::int16_t>(0xFF01))));
    lower = hn::Sub(sums, differences);
    upper = hn::Add(sums, differences);
  }
#endif

  // All butterflies except those of quads and of r0. Subtracts the offset, which has accumulated in the first words.
  static HWY_INLINE void over_words(RowWords& w) {
    HWY_UNROLL(4)
    for (std::size_t part = 0; part < kParts; ++part) {
      over_bit<4>(w, part, butterfly);
      if constexpr (kParts == 1) over_bit<1>(w, part, butterfly);
    }
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) over_parts(w[i]);
    HWY_UNROLL(4)
    for (std::size_t part = 0; part < kParts; ++part) {
      over_bit<2>(w, part, butterfly_words);
      if constexpr (kParts != 1) over_bit<1>(w, part, butterfly_dwords);
#if HWY_MAX_BYTES >= 32
      over_bit<4>(w, part, butterfly_blocks);
      if constexpr (kParts == 1) over_bit<1>(w, part, butterfly_blocks);
#endif
    }
    alignas(64) static constexpr auto kOffsets = [] {
      std::array<std::int16_t, 32> offsets{};
      for (std::size_t i = 0; i < 8; ++i) offsets[i] = 32 * kQuadOffset;
      return offsets;
    }();
    w[0][0] = hn::Sub(w[0][0], hn::Load(WordTag(), kOffsets.data()));
  }

  template <std::size_t kBit, class Butterfly>
  static HWY_INLINE void over_bit(RowWords& w, std::size_t part, Butterfly butterfly) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      if ((i & kBit) == 0) butterfly(w[i][part], w[i | kBit][part]);
    }
  }
  static HWY_INLINE void over_parts(Words (&w)[kParts]) {
    if constexpr (kParts >= 2) {
      HWY_UNROLL(2)
      for (std::size_t part = 0; part < kParts; part += 2) butterfly(w[part], w[part + 1]);
    }
    if constexpr (kParts == 4) {
      butterfly(w[0], w[2]);
      butterfly(w[1], w[3]);
    }
  }

  // ---- In memory.

  static HWY_INLINE void quads(float* x) {
    const hn::FixedTag<float, 4> d;
    for (std::size_t i = 0; i < kH4Block; i += 4) {
      const auto v = hn::Load(d, x + i);
      const auto pairs = hn::Add(v, hn::Shuffle2301(v));
      const auto sum = hn::Add(pairs, hn::Shuffle1032(pairs));
      hn::Store(hn::Sub(sum, hn::Add(v, v)), d, x + i);
    }
  }
  template <std::size_t kHalf>
  static HWY_INLINE void stage(float* x) {
    const hn::CappedTag<float, kHalf> d;
    for (std::size_t begin = 0; begin < kH4Block; begin += 2 * kHalf) {
      for (std::size_t i = begin; i < begin + kHalf; i += hn::Lanes(d)) {
        const auto a = hn::Load(d, x + i), b = hn::Load(d, x + i + kHalf);
        hn::Store(hn::Add(a, b), d, x + i);
        hn::Store(hn::Sub(a, b), d, x + i + kHalf);
      }
    }
  }

  // Pairs of words: (1, 1) of even rows, (1, -1) of odd ones, or their negatives.
  alignas(64) std::int32_t signs_[16 * reference::kH4SignRows];
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
