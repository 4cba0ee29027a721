// float16 and bfloat16 to and from float in vectors, the same bits as base/half.h. Per target.

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Bits = hn::Vec<BitsTag>;

// Masks of `bits` below and above a bound. Both are under 2^31, so a signed comparison is right, and it is cheap.
HWY_INLINE hn::Mask<BitsTag> below(Bits bits, std::int32_t bound) {
  const hn::RebindToSigned<BitsTag> d;
  return hn::RebindMask(BitsTag(), hn::Lt(hn::BitCast(d, bits), hn::Set(d, bound)));
}
HWY_INLINE hn::Mask<BitsTag> above(Bits bits, std::int32_t bound) {
  const hn::RebindToSigned<BitsTag> d;
  return hn::RebindMask(BitsTag(), hn::Gt(hn::BitCast(d, bits), hn::Set(d, bound)));
}

// Each converter: load() widens Lanes(FloatTag) values, load_exactly() keeps the payloads of NaN as well, store()
// rounds and stores as many.
struct BFloat16Lanes {
  static HWY_INLINE Floats load(const std::uint16_t* from) {
    const BitsTag bits;
    const auto half = hn::LoadU(HalfTag(), from);
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
  }
  static HWY_INLINE Floats load_exactly(const std::uint16_t* from) { return load(from); }

  static HWY_INLINE void store(Floats value, std::uint16_t* to) {
    const BitsTag d;
    const Bits bits = hn::BitCast(d, value);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const Bits rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu))));
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
    hn::StoreU(hn::TruncateTo(HalfTag(), hn::IfThenElse(is_nan, hn::Set(d, 0x7FC0u), rounded)), HalfTag(), to);
  }
};

struct Float16Lanes {
  static HWY_INLINE Floats load(const std::uint16_t* from) {
    const FloatTag d;
    const BitsTag bits;
    const hn::RebindToSigned<FloatTag> integers;
    const Bits half = hn::PromoteTo(bits, hn::LoadU(HalfTag(), from));
    const Bits magnitude = hn::And(half, hn::Set(bits, 0x7FFFu));
    const Bits sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
    const Bits normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(bits, 112u << 23));
    // A subnormal is a whole number of 2^-24, which a float holds exactly.
    const Floats scaled = hn::Mul(hn::ConvertTo(d, hn::BitCast(integers, magnitude)), hn::Set(d, 0x1p-24f));
    const auto below_normal = below(magnitude, 0x400);
    const Bits finite = hn::IfThenElse(below_normal, hn::BitCast(bits, scaled), normal);
    const Bits infinity = hn::Set(bits, 0x7F800000u);
    const Bits number = hn::IfThenElse(below(magnitude, 0x7C00), finite, infinity);
    const auto is_nan = above(magnitude, 0x7C00);
    return hn::BitCast(d, hn::IfThenElse(is_nan, hn::Set(bits, 0x7FC00000u), hn::Or(number, sign)));
  }

  static HWY_INLINE Floats load_exactly(const std::uint16_t* from) {
    const BitsTag d;
    const Bits half = hn::PromoteTo(d, hn::LoadU(HalfTag(), from));
    const Bits magnitude = hn::And(half, hn::Set(d, 0x7FFFu));
    const Bits sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
    const Bits nan = hn::Or(sign, hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, 224u << 23)));
    return hn::BitCast(FloatTag(), hn::IfThenElse(above(magnitude, 0x7C00), nan, hn::BitCast(d, load(from))));
  }

  static HWY_INLINE void store(Floats value, std::uint16_t* to) {
    const FloatTag f;
    const BitsTag d;
    const Bits bits = hn::BitCast(d, value);
    const Bits magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const Bits sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u));
    const Bits odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const Bits rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(d, 0xFFFu)));
    const Bits normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(d, 0x38000000u)));
    // Below 2^-14 the result is a whole number of 2^-24, the last place of a float in [0.5, 1):
    // adding 0.5 rounds to it, to nearest even.
    const Floats shifted = hn::Add(hn::BitCast(f, magnitude), hn::Set(f, 0.5f));
    const Bits subnormal = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, 0x3F000000u));
    const auto below_normal = below(magnitude, 0x38800000);
    const Bits finite = hn::IfThenElse(below_normal, subnormal, normal);
    const auto overflows = above(magnitude, 0x477FFFFF);
    const Bits number = hn::Or(hn::IfThenElse(overflows, hn::Set(d, 0x7C00u), finite), sign);
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
    hn::StoreU(hn::TruncateTo(HalfTag(), hn::IfThenElse(is_nan, hn::Set(d, 0x7E00u), number)), HalfTag(), to);
  }
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
