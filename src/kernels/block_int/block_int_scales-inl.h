// Scales of blocks, many at a time. Per target.

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/block_int/block_int.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kGroupBlocks = 16;
inline constexpr std::size_t kStepUnit = 32;  // blocks of whole units are encoded as vectors

// Groups of such blocks are whole bytes, and whole chunks of 64.
constexpr bool whole_units(BlockIntFormat format) {
  return format.block_size % (format.block_size <= 1024 ? kStepUnit : 2 * kStepUnit) == 0;
}

// Largest magnitude, as bits, in each lane's share of `source`. NaN and infinity exceed all others.
HWY_INLINE Integers magnitudes(const float* source, std::size_t n) {
  const ValueTag d;
  const IntegerTag integers;
  const Integers all_but_sign = hn::Set(integers, 0x7FFFFFFF);
  const auto take = [=](Integers most, Values v)
                        HWY_ATTR { return hn::Max(most, hn::And(hn::BitCast(integers, v), all_but_sign)); };
  Integers a = hn::Zero(integers), b = a;
  std::size_t i = 0;
  for (; i + 4 * kValueLanes <= n; i += 4 * kValueLanes) {
    a = take(a, hn::LoadU(d, source + i));
    b = take(b, hn::LoadU(d, source + i + kValueLanes));
    a = take(a, hn::LoadU(d, source + i + 2 * kValueLanes));
    b = take(b, hn::LoadU(d, source + i + 3 * kValueLanes));
  }
  for (; i + kValueLanes <= n; i += kValueLanes) a = take(a, hn::LoadU(d, source + i));
  if (i < n) b = take(b, load_first(source + i, n - i));
  return hn::Max(a, b);
}

// One row of lanes for each of kValueLanes blocks.
struct MagnitudeRows {
  alignas(64) std::int32_t lanes[kValueLanes][kValueLanes];

  HWY_INLINE Integers row(std::size_t index) const { return hn::Load(IntegerTag(), lanes[index]); }

  // Within each 128 bits: the largest of four rows, in order.
  HWY_INLINE Integers join_four(std::size_t index) const {
    const IntegerTag d;
    const hn::Repartition<std::int64_t, IntegerTag> pairs;
    const auto join_two = [=](Integers x, Integers y)
                              HWY_ATTR { return hn::Max(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y)); };
    const auto first = hn::BitCast(pairs, join_two(row(index), row(index + 1)));
    const auto second = hn::BitCast(pairs, join_two(row(index + 2), row(index + 3)));
    return hn::Max(hn::BitCast(d, hn::InterleaveLower(pairs, first, second)),
                   hn::BitCast(d, hn::InterleaveUpper(pairs, first, second)));
  }

  // Lane i: the largest of row i.
  HWY_INLINE Integers largest() const {
    const IntegerTag d;
#if HWY_MAX_BYTES == 64 && HWY_ARCH_X86
    const auto join = [](Integers x, Integers y) HWY_ATTR {
      return hn::Max(Integers{_mm512_shuffle_i32x4(x.raw, y.raw, 0x88)},
                     Integers{_mm512_shuffle_i32x4(x.raw, y.raw, 0xDD)});
    };
    return join(join(join_four(0), join_four(4)), join(join_four(8), join_four(12)));
#elif HWY_MAX_BYTES == 32
    const Integers low = join_four(0), high = join_four(4);
    return hn::Max(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
#else
    static_cast<void>(d);
    return join_four(0);
#endif
  }
};

// Up to kGroupBlocks blocks: the factors for their elements, and whether any block needs special treatment.
struct BlockGroup {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool plain = true;  // all scales are valid and below the upper limit
  alignas(64) float inverses[kGroupBlocks];
};

class GroupScales {
 public:
  HWY_INLINE GroupScales(BlockIntFormat format, bool stochastic)
      : block_size_(format.block_size),
        divisor_(static_cast<float>(reference::largest_integer(format.bits))),
        limit_(static_cast<std::int32_t>(reference::largest_scale_bits(format.bits))),
        unit_(stochastic ? reference::kRandomSteps : 1.0f) {}

  // Fills `group` with the blocks in source[begin, end), and writes their scales.
  HWY_INLINE void make(const float* source, std::size_t begin, std::size_t end, std::byte* scales, BlockGroup& group) {
    group.begin = begin;
    group.end = end;
    group.plain = true;
    for (std::size_t block = 0; begin < end; block += kValueLanes) {
      MagnitudeRows rows;
      std::size_t count = 0;
      for (; count < kValueLanes && begin < end; ++count, begin += block_size_) {
        hn::Store(magnitudes(source + begin, std::min(block_size_, end - begin)), IntegerTag(), rows.lanes[count]);
      }
      for (std::size_t i = count; i < kValueLanes; ++i) hn::Store(hn::Zero(IntegerTag()), IntegerTag(), rows.lanes[i]);
      group.plain = from_magnitudes(rows.largest(), count, scales, group.inverses + block) && group.plain;
      scales += count * kBlockScaleBytes;
    }
  }

 private:
  // reference::make_scale_bits() in every lane. False if a scale is NaN or at its upper limit.
  HWY_INLINE bool from_magnitudes(Integers magnitude, std::size_t count, std::byte* scales, float* inverses) {
    const ValueTag d;
    const IntegerTag integers;
    const Values quotient = hn::Div(hn::BitCast(d, magnitude), hn::Set(d, divisor_));
    const Integers up = hn::And(hn::Add(hn::BitCast(integers, quotient), hn::Set(integers, 0xFFFF)),
                                hn::Set(integers, static_cast<std::int32_t>(0xFFFF0000u)));
    const Integers smallest = hn::Set(integers, static_cast<std::int32_t>(reference::kSmallestScaleBits));
    const Integers limit = hn::Set(integers, limit_);
    const Integers finite = hn::Min(hn::Max(up, smallest), limit);
    const auto invalid = hn::Gt(magnitude, hn::Set(integers, static_cast<std::int32_t>(reference::kInfinityBits) - 1));
    const Integers invalid_bits = hn::Set(integers, static_cast<std::int32_t>(reference::kInvalidScaleBits));
    const Integers scale = hn::IfThenElse(invalid, invalid_bits, finite);
    const Values inverse = hn::Div(hn::Set(d, 1.0f), hn::BitCast(d, finite));
    hn::StoreU(hn::Mul(inverse, hn::Set(d, unit_)), d, inverses);
    store_scales(scale, count, scales);
    return hn::AllTrue(integers, hn::Lt(scale, limit));
  }

  HWY_INLINE void store_scales(Integers scale, std::size_t count, std::byte* to) {
    const hn::Rebind<std::uint16_t, ValueTag> d;
    const auto halves = hn::TruncateTo(d, hn::ShiftRight<16>(hn::BitCast(UnsignedTag(), scale)));
    if (count == kValueLanes) return hn::StoreU(halves, d, reinterpret_cast<std::uint16_t*>(to));
    alignas(64) std::uint16_t stored[kValueLanes];
    hn::StoreU(halves, d, stored);
    std::memcpy(to, stored, count * kBlockScaleBytes);
  }

  const std::size_t block_size_;
  const float divisor_;
  const std::int32_t limit_;
  const float unit_;
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
