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

HWY_INLINE double grid_squares(const float* v, std::size_t n) {
  Values lanes[kSquareVectors];
  for (auto& lane : lanes) lane = hn::Zero(ValueTag());
  std::size_t i = 0;
  for (; i + grid::kSquareLanes <= n; i += grid::kSquareLanes) add_squares(v + i, lanes);
  if (i < n) {
    float padded[grid::kSquareLanes] = {};
    std::memcpy(padded, v + i, (n - i) * sizeof(float));
    add_squares(padded, lanes);
  }
  std::array<float, grid::kSquareLanes> stored;
  for (std::size_t at = 0; at < kSquareVectors; ++at) hn::StoreU(lanes[at], ValueTag(), &stored[at * kValueLanes]);
  const float squares = reference::sum_of_lanes(stored);
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

// A bucket's line in all lanes.
struct GridLine {
  using Floats = hn::Vec<BlockFloats>;
  explicit HWY_INLINE GridLine(const grid::Line& line)
      : step(hn::Set(BlockFloats(), line.step)),
        inverse(hn::Set(BlockFloats(), line.inverse)),
        largest(hn::Set(BlockFloats(), line.largest)) {}

  HWY_INLINE Floats limited(Floats multiples) const { return hn::Max(hn::Neg(largest), hn::Min(largest, multiples)); }
  // Of multiples up to the largest. `random`: a byte for each lane, or null.
  HWY_INLINE hn::Vec<BlockIntegers> integers(Floats multiples, const std::uint8_t* random) const {
    if (random == nullptr) return round_block(multiples);
    const hn::Rebind<std::uint8_t, BlockIntegers> bytes;
    const auto steps = round_block(hn::Mul(multiples, hn::Set(BlockFloats(), 256.0f)));
    return hn::ShiftRight<8>(hn::Add(steps, hn::PromoteTo(BlockIntegers(), hn::LoadU(bytes, random))));
  }

  Floats step, inverse, largest;
};

// The zigzag integers of a block, in packed order.
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
    return hn::GetLane(hn::MaxOfLanes(d, hn::BitCast(d, or_halves(any))));
  }

  // The lower or the upper bytes, of which the lower ones must be all if there are no upper ones.
  HWY_INLINE void lower_bytes(std::uint8_t* to) const {
    bytes(to, [](auto word) HWY_ATTR { return hn::And(word, hn::Set(BlockWords(), 0xFF)); });
  }
  HWY_INLINE void upper_bytes(std::uint8_t* to) const {
    bytes(to, [](auto word) HWY_ATTR { return hn::ShiftRight<8>(word); });
  }
  HWY_INLINE void only_bytes(std::uint8_t* to) const {
    bytes(to, [](auto word) HWY_ATTR { return word; });
  }

 private:
  static constexpr std::size_t kVectors = kGridBlock / (2 * kBlockLanes);

  template <class Byte>
  HWY_INLINE void bytes(std::uint8_t* to, Byte byte) const {
    const BlockBytes d;
    for (std::size_t v = 0; v < kVectors; v += 2) {
      const auto packed = block_bytes(byte(words_[v]), byte(words_[v + 1]));
      hn::StoreU(in_block_order(packed), d, to + v * 2 * kBlockLanes);
    }
  }

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

// ---- Packing eight bytes, of which only the lower `width` bits are set, into so many bytes, and back.

#if HWY_ARCH_X86_64 && HWY_MAX_BYTES >= 32
// As in the processor's pext and pdep.
class EightBits {
 public:
  explicit HWY_INLINE EightBits(int width) : mask_(kMasks[width]) {}
  HWY_INLINE std::uint64_t close(std::uint64_t x) const { return _pext_u64(x, mask_); }
  HWY_INLINE std::uint64_t open(std::uint64_t x) const { return _pdep_u64(x, mask_); }

 private:
  static constexpr std::uint64_t kMasks[9] = {0,
                                              0x0101010101010101u,
                                              0x0303030303030303u,
                                              0x0707070707070707u,
                                              0x0F0F0F0F0F0F0F0Fu,
                                              0x1F1F1F1F1F1F1F1Fu,
                                              0x3F3F3F3F3F3F3F3Fu,
                                              0x7F7F7F7F7F7F7F7Fu,
                                              0xFFFFFFFFFFFFFFFFu};
  const std::uint64_t mask_;
};
#else
using EightBits = grid::EightBits;
#endif

// These write up to 8 bytes more than the block takes. grid_pack_bytes() is for widths up to 8, grid_pack_words() for
// larger ones.
HWY_INLINE void grid_pack_bytes(const GridIntegers& integers, int width, std::uint8_t* to) {
  alignas(32) std::uint8_t bytes[kGridBlock];
  integers.only_bytes(bytes);
  const EightBits bits(width);
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kGridBlock; i += 8, to += width) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + i, 8);
    eight = bits.close(eight);
    std::memcpy(to, &eight, 8);
  }
}

HWY_INLINE void grid_pack_words(const GridIntegers& integers, int width, std::uint8_t* to) {
  alignas(32) std::uint8_t bytes[kGridBlock];
  alignas(32) std::uint8_t upper[kGridBlock];
  integers.lower_bytes(bytes);
  integers.upper_bytes(upper);
  const EightBits bits(width - 8);
  for (std::size_t i = 0; i < kGridBlock; i += 8, to += width) {
    std::uint64_t eight;
    std::memcpy(&eight, upper + i, 8);
    eight = bits.close(eight);
    std::memcpy(to, bytes + i, 8);
    std::memcpy(to + 8, &eight, 8);
  }
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
