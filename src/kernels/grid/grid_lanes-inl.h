// The encoding parts of grid_slices-inl.h in vectors. Per target.

#include <bit>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/grid/grid_entropy.h"
#include "kernels/grid/grid_reference.h"
#include "kernels/lanes/random-inl.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

using GridAssign = Assign;
using GridAdd = AddTo;

class GridRandom {
 public:
  explicit HWY_INLINE GridRandom(const RandomStream& stream) : run_(stream) {}
  // The bytes of up to kGridPart elements from this index on, valid until the next call. A few beyond are readable.
  HWY_INLINE const std::uint8_t* at(std::size_t index, std::size_t n) { return run_.at(index, n); }

 private:
  RandomRun<kGridPart> run_;
};

// ---- Sums of squares.

inline constexpr std::size_t kSquareVectors = grid::kSquareLanes / kValueLanes;

HWY_INLINE void add_squares(const float* v, Values (&lanes)[kSquareVectors]) {
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kSquareVectors; ++i) {
    const Values x = hn::LoadU(ValueTag(), v + i * kValueLanes);
    lanes[i] = hn::Add(lanes[i], hn::Mul(x, x));
  }
}

// In the order of reference::sum_of_lanes().
template <class D>
HWY_INLINE float sum_of_halves(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return sum_of_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

HWY_INLINE double grid_squares(const float* v, std::size_t n) {
  Values lanes[kSquareVectors];
  HWY_UNROLL(8)
  for (std::size_t at = 0; at < kSquareVectors; ++at) lanes[at] = hn::Zero(ValueTag());
  std::size_t i = 0;
  for (; i + grid::kSquareLanes <= n; i += grid::kSquareLanes) add_squares(v + i, lanes);
  if (i < n) {
    float padded[grid::kSquareLanes] = {};
    std::memcpy(padded, v + i, (n - i) * sizeof(float));
    add_squares(padded, lanes);
  }
  HWY_UNROLL(3)
  for (std::size_t width = kSquareVectors / 2; width > 0; width /= 2) {
    HWY_UNROLL(4)
    for (std::size_t at = 0; at < width; ++at) lanes[at] = hn::Add(lanes[at], lanes[at + width]);
  }
  const float squares = sum_of_halves(ValueTag(), lanes[0]);
  return grid::is_good_sum(squares) ? squares : grid::squares_in<double>(v, n);
}

// ---- Quantizing. A block's values are vectors of up to 32 bytes on every target.

using BlockFloats = hn::CappedTag<float, 8>;
using BlockIntegers = hn::RebindToSigned<BlockFloats>;
using BlockWords = hn::Repartition<std::int16_t, BlockFloats>;
using BlockBytes = hn::Repartition<std::uint8_t, BlockFloats>;
inline constexpr std::size_t kBlockLanes = hn::MaxLanes(BlockFloats());

#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
#define QCCL_BLOCK_X86(operation) _mm256_##operation
#else
#define QCCL_BLOCK_X86(operation) _mm_##operation
#endif

// Packing works within each 128 bits on x86: integers of 32 bits become bytes in "packed order".
#if HWY_ARCH_X86
HWY_INLINE hn::Vec<BlockIntegers> round_block(hn::Vec<BlockFloats> v) {
  return hn::Vec<BlockIntegers>{QCCL_BLOCK_X86(cvtps_epi32)(v.raw)};
}
HWY_INLINE hn::Vec<BlockWords> block_words(hn::Vec<BlockIntegers> a, hn::Vec<BlockIntegers> b) {
  return hn::Vec<BlockWords>{QCCL_BLOCK_X86(packs_epi32)(a.raw, b.raw)};
}
HWY_INLINE hn::Vec<BlockBytes> block_bytes(hn::Vec<BlockWords> a, hn::Vec<BlockWords> b) {
  return hn::Vec<BlockBytes>{QCCL_BLOCK_X86(packus_epi16)(a.raw, b.raw)};
}
#else
HWY_INLINE hn::Vec<BlockIntegers> round_block(hn::Vec<BlockFloats> v) { return hn::NearestInt(v); }
HWY_INLINE hn::Vec<BlockWords> block_words(hn::Vec<BlockIntegers> a, hn::Vec<BlockIntegers> b) {
  const hn::Half<BlockWords> half;
  return hn::Combine(BlockWords(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
HWY_INLINE hn::Vec<BlockBytes> block_bytes(hn::Vec<BlockWords> a, hn::Vec<BlockWords> b) {
  const hn::Half<BlockBytes> half;
  return hn::Combine(BlockBytes(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
#endif
#undef QCCL_BLOCK_X86

// Bytes in packed order to their own.
HWY_INLINE hn::Vec<BlockBytes> in_block_order(hn::Vec<BlockBytes> packed) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return hn::Vec<BlockBytes>{_mm256_permutevar8x32_epi32(packed.raw, order)};
#else
  return packed;
#endif
}

// A bucket's line in all lanes. Stochastic rounding takes 256ths of multiples, which scales all of them.
struct GridLine {
  using Floats = hn::Vec<BlockFloats>;
  HWY_INLINE GridLine(const grid::Line& line, bool is_stochastic)
      : step(hn::Set(BlockFloats(), line.step)),
        inverse(hn::Set(BlockFloats(), is_stochastic ? line.inverse * 256.0f : line.inverse)),
        largest(hn::Set(BlockFloats(), is_stochastic ? line.largest * 256.0f : line.largest)) {}

  HWY_INLINE Floats limited(Floats multiples) const { return hn::Max(hn::Neg(largest), hn::Min(largest, multiples)); }
  // Of multiples up to the largest. `random`: a byte for each lane, or null.
  HWY_INLINE hn::Vec<BlockIntegers> integers(Floats multiples, const std::uint8_t* random) const {
    if (random == nullptr) return round_block(multiples);
    const hn::Rebind<std::uint8_t, BlockIntegers> bytes;
    const auto random_lanes = hn::PromoteTo(BlockIntegers(), hn::LoadU(bytes, random));
    return hn::ShiftRight<8>(hn::Add(round_block(multiples), random_lanes));
  }

  Floats step, inverse, largest;
};

// The zigzag integers of a block, in packed order, as are their bytes.
class GridIntegers {
 public:
  // False if a value is out of range and that is to be detected.
  template <GridRange kRange>
  HWY_INLINE bool quantize(const float* x, const GridLine& line, const std::uint8_t* random) {
    const BlockFloats d;
    auto in_range = hn::Eq(hn::Zero(d), hn::Zero(d));
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t i = 2 * v * kBlockLanes;
      auto t0 = hn::Mul(hn::LoadU(d, x + i), line.inverse);
      auto t1 = hn::Mul(hn::LoadU(d, x + i + kBlockLanes), line.inverse);
      if (kRange == GridRange::limited) {
        t0 = line.limited(t0);
        t1 = line.limited(t1);
      }
      if (kRange == GridRange::detected) {
        const auto inside = hn::And(hn::Le(hn::Abs(t0), line.largest), hn::Le(hn::Abs(t1), line.largest));
        in_range = hn::And(in_range, inside);
      }
      const auto q0 = line.integers(t0, random != nullptr ? random + i : nullptr);
      const auto q1 = line.integers(t1, random != nullptr ? random + i + kBlockLanes : nullptr);
      const auto q = block_words(q0, q1);
      words_[v] = hn::Xor(hn::Add(q, q), hn::BroadcastSignBit(q));
    }
    return kRange != GridRange::detected || HWY_LIKELY(hn::AllTrue(d, in_range));
  }

  HWY_INLINE std::uint32_t largest() const {
    auto any = words_[0];
    HWY_UNROLL(4)
    for (std::size_t v = 1; v < kVectors; ++v) any = hn::Or(any, words_[v]);
    const hn::FixedTag<std::uint16_t, 8> d;
    const auto words = hn::BitCast(d, or_halves(any));
#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
    return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(_mm_minpos_epu16(hn::Not(words).raw)));
#else
    return hn::GetLane(hn::MaxOfLanes(d, words));
#endif
  }

  // Vector v of their lower or upper bytes, of which the lower ones must be all if there are no upper ones.
  HWY_INLINE hn::Vec<BlockBytes> lower_bytes(std::size_t v) const {
    const auto mask = hn::Set(BlockWords(), 0xFF);
    return block_bytes(hn::And(words_[2 * v], mask), hn::And(words_[2 * v + 1], mask));
  }
  HWY_INLINE hn::Vec<BlockBytes> upper_bytes(std::size_t v) const {
    return block_bytes(hn::ShiftRight<8>(words_[2 * v]), hn::ShiftRight<8>(words_[2 * v + 1]));
  }
  HWY_INLINE hn::Vec<BlockBytes> only_bytes(std::size_t v) const {
    return block_bytes(words_[2 * v], words_[2 * v + 1]);
  }
  HWY_INLINE void store_bytes(std::uint8_t* to) const {
    const BlockBytes d;
    for (std::size_t v = 0; v < kVectors / 2; ++v)
      hn::StoreU(in_block_order(only_bytes(v)), d, to + v * hn::MaxLanes(d));
  }

 private:
  static constexpr std::size_t kVectors = kGridBlock / (2 * kBlockLanes);

  template <class V>
  static HWY_INLINE hn::Vec<hn::FixedTag<std::int16_t, 8>> or_halves(V v) {
    if constexpr (sizeof(V) == 16) {
      return v;
    } else {
      const hn::FixedTag<std::int16_t, 8> half;
      return hn::Or(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
    }
  }

  hn::Vec<BlockWords> words_[kVectors];
};

HWY_INLINE void grid_keep(const float* x, const GridLine& line, const std::uint8_t* random, float* y) {
  const BlockFloats d;
  for (std::size_t i = 0; i < kGridBlock; i += kBlockLanes) {
    const auto value = hn::LoadU(d, x + i), t = hn::Mul(value, line.inverse);
    const auto q = line.integers(line.limited(t), random != nullptr ? random + i : nullptr);
    const auto rounded = hn::Mul(hn::ConvertTo(d, q), line.step);
    hn::StoreU(hn::IfThenElse(hn::Le(hn::Abs(t), line.largest), rounded, value), d, y + i);
  }
}

// The sum of the magnitudes of a group's integers.
HWY_INLINE std::uint32_t grid_magnitudes(const std::uint8_t* z) {
  const BlockBytes d;
  const hn::Repartition<std::uint64_t, BlockBytes> sums;
  auto sum = hn::Zero(sums);
  for (std::size_t i = 0; i < grid::kGroup; i += hn::MaxLanes(d)) {
    sum = hn::Add(sum, hn::SumsOf8(hn::AverageRound(hn::LoadU(d, z + i), hn::Zero(d))));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(sums, sum)));
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
