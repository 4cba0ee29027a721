// The decoding parts of grid_slices-inl.h in vectors. Per target.

#include <cstring>

#include "hwy/highway.h"
#include "kernels/grid/grid_eights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Vector v of bytes.
HWY_INLINE Integers integers_of(const std::uint8_t* bytes, std::size_t v) {
  const hn::Rebind<std::uint8_t, ValueTag> narrow;
  return hn::PromoteTo(IntegerTag(), hn::LoadU(narrow, bytes + v * kValueLanes));
}

// Eight integers of `width` up to 8 bits, which are `stride` bytes after the last eight, for a block. Reads up to 8
// bytes beyond them.
class OpenedBytes {
 public:
  HWY_INLINE OpenedBytes(const std::uint8_t* from, int width, int stride) {
    const EightBits bits(width);
    HWY_UNROLL(4)
    for (std::uint64_t& eight : eights_) {
      std::memcpy(&eight, from, 8);
      eight = bits.open(eight);
      from += stride;
    }
  }
  // Vector v of the block's integers.
  HWY_INLINE Integers integers(std::size_t v) const {
#if HWY_MAX_BYTES == 64
    // A load of what two stores have written would wait for both.
    const hn::FixedTag<std::uint64_t, 2> d;
    const hn::Rebind<std::uint8_t, ValueTag> narrow;
    const auto pair = hn::OddEven(hn::Set(d, eights_[2 * v + 1]), hn::Set(d, eights_[2 * v]));
    return hn::PromoteTo(IntegerTag(), hn::BitCast(narrow, pair));
#else
    return integers_of(reinterpret_cast<const std::uint8_t*>(eights_), v);
#endif
  }

 private:
  std::uint64_t eights_[4];
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

HWY_INLINE Values value_of(Integers zigzag, Values step) {
  const Integers q = hn::Xor(hn::ShiftRight<1>(zigzag), hn::Neg(hn::And(zigzag, hn::Set(IntegerTag(), 1))));
  return hn::Mul(hn::ConvertTo(ValueTag(), q), step);
}

// A block of zigzag integers of a byte each.
template <class Finish>
HWY_INLINE void grid_decode_bytes(const std::uint8_t* z, Values step, float* target, std::size_t index,
                                  Finish& finish) {
  store_block([&](std::size_t v) HWY_ATTR { return value_of(integers_of(z, v), step); }, target, index, finish);
}

// Reads up to 8 bytes beyond the block.
template <class Finish>
HWY_INLINE void grid_decode_block(const std::uint8_t* from, int width, Values step, float* target, std::size_t index,
                                  Finish& finish) {
  if (HWY_LIKELY(width <= 8)) {
    const OpenedBytes opened(from, width, width);
    const auto value = [&](std::size_t v) HWY_ATTR { return value_of(opened.integers(v), step); };
    return store_block(value, target, index, finish);
  }
  const OpenedBytes lower(from, 8, width), upper(from + 8, width - 8, width);
  const auto value = [&](std::size_t v) HWY_ATTR {
    return value_of(hn::Or(lower.integers(v), hn::ShiftLeft<8>(upper.integers(v))), step);
  };
  store_block(value, target, index, finish);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
