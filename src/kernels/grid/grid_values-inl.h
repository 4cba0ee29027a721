// The decoding parts of grid_slices-inl.h in vectors. Per target.

#include <cstring>

#include "hwy/highway.h"
#include "kernels/grid/grid_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Eight integers of `width` up to 8 bits, which are `stride` bytes after the last eight, for a block. Reads up to 8
// bytes beyond them.
class OpenedBytes {
 public:
  HWY_INLINE OpenedBytes(const std::uint8_t* from, int width, int stride) {
    const EightBits bits(width);
    HWY_UNROLL(4)
    for (std::uint64_t& eight : eights) {
      std::memcpy(&eight, from, 8);
      eight = bits.open(eight);
      from += stride;
    }
  }
  // The same as vectors of bytes.
  HWY_INLINE hn::Vec<BlockBytes> vector(std::size_t index) const {
#if HWY_MAX_BYTES >= 32
    const hn::Repartition<std::uint64_t, BlockBytes> all;
    return hn::BitCast(BlockBytes(), hn::Combine(all, pair(2 * index + 2), pair(2 * index)));
#else
    return hn::BitCast(BlockBytes(), pair(2 * index));
#endif
  }
  std::uint64_t eights[4];

 private:
  HWY_INLINE hn::Vec<hn::FixedTag<std::uint64_t, 2>> pair(std::size_t i) const {
    const hn::FixedTag<std::uint64_t, 2> d;
    return hn::OddEven(hn::Set(d, eights[i + 1]), hn::Set(d, eights[i]));
  }
};

// Stores a block's values: store() gets vector i's by value(i).
template <class Value, class Finish>
HWY_INLINE void store_block(Value value, float* target, std::size_t index, Finish& finish) {
  constexpr std::size_t kVectors = kGridBlock / kValueLanes;
  if constexpr (kVectors % 4 == 0) {
    HWY_UNROLL(2)
    for (std::size_t v = 0; v < kVectors; v += 4) {
      finish.store(value(v), value(v + 1), value(v + 2), value(v + 3), target, index + v * kValueLanes);
    }
  } else {
    for (std::size_t v = 0; v < kVectors; ++v) finish.store(value(v), target, index + v * kValueLanes);
  }
}

// From zigzag integers of a byte each, in the vectors vector(0) and on.
template <class Vector, class Finish>
HWY_INLINE void store_bytes(Vector vector, Values step, float* target, std::size_t index, Finish& finish) {
  const BlockBytes d;
  alignas(32) std::int8_t bytes[kGridBlock];
  for (std::size_t i = 0; i < kGridBlock; i += 4 * kBlockLanes) {
    const auto z = vector(i / (4 * kBlockLanes));
    const auto half = hn::And(hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(BlockWords(), z))), hn::Set(d, 0x7F));
    const auto sign = hn::Sub(hn::Zero(d), hn::And(z, hn::Set(d, 1)));
    hn::Store(hn::Xor(half, sign), d, reinterpret_cast<std::uint8_t*>(bytes) + i);
  }
  const hn::Rebind<std::int8_t, ValueTag> narrow;
  store_block(
      [&](std::size_t v) HWY_ATTR {
        const Integers q = hn::PromoteTo(IntegerTag(), hn::LoadU(narrow, bytes + v * kValueLanes));
        return hn::Mul(hn::ConvertTo(ValueTag(), q), step);
      },
      target, index, finish);
}

template <class Finish>
HWY_INLINE void store_wide(const OpenedBytes& lower, const OpenedBytes& upper, Values step, float* target,
                           std::size_t index, Finish& finish) {
  const hn::Rebind<std::uint8_t, ValueTag> narrow;
  const IntegerTag d;
  const auto byte = [&](const OpenedBytes& opened, std::size_t v) HWY_ATTR {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(opened.eights);
    return hn::PromoteTo(d, hn::LoadU(narrow, bytes + v * kValueLanes));
  };
  store_block(
      [&](std::size_t v) HWY_ATTR {
        const Integers z = hn::Or(byte(lower, v), hn::ShiftLeft<8>(byte(upper, v)));
        const Integers q = hn::Xor(hn::ShiftRight<1>(z), hn::Neg(hn::And(z, hn::Set(d, 1))));
        return hn::Mul(hn::ConvertTo(ValueTag(), q), step);
      },
      target, index, finish);
}

// A block of zigzag integers of a byte each.
template <class Finish>
HWY_INLINE void grid_decode_bytes(const std::uint8_t* z, Values step, float* target, std::size_t index,
                                  Finish& finish) {
  const BlockBytes d;
  store_bytes([&](std::size_t v) HWY_ATTR { return hn::LoadU(d, z + v * hn::MaxLanes(d)); }, step, target, index,
              finish);
}

// Reads up to 8 bytes beyond the block.
template <class Finish>
HWY_INLINE void grid_decode_block(const std::uint8_t* from, int width, Values step, float* target, std::size_t index,
                                  Finish& finish) {
  if (HWY_LIKELY(width <= 8)) {
    const OpenedBytes opened(from, width, width);
    return store_bytes([&](std::size_t v) HWY_ATTR { return opened.vector(v); }, step, target, index, finish);
  }
  store_wide(OpenedBytes(from, 8, width), OpenedBytes(from + 8, width - 8, width), step, target, index, finish);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
