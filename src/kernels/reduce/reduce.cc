#include "kernels/reduce/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/lanes/half-inl.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

template <class V>
HWY_INLINE V canonical(V value) {
  if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
    const hn::DFromV<V> d;
    const V nan = hn::Set(d, std::numeric_limits<hn::TFromV<V>>::quiet_NaN());
    return hn::IfThenElse(hn::IsNaN(value), nan, value);
  } else {
    return value;
  }
}

inline constexpr auto kAdd = [](auto a, auto b) HWY_ATTR { return canonical(hn::Add(a, b)); };
inline constexpr auto kMultiply = [](auto a, auto b) HWY_ATTR { return canonical(hn::Mul(a, b)); };
inline constexpr auto kAnd = [](auto a, auto b) HWY_ATTR { return hn::And(a, b); };
inline constexpr auto kOr = [](auto a, auto b) HWY_ATTR { return hn::Or(a, b); };
inline constexpr auto kXor = [](auto a, auto b) HWY_ATTR { return hn::Xor(a, b); };

// The lesser of two, or the greater. Equal numbers have the same bits, except zeros: -0 | +0 is -0, -0 & +0 is +0.
template <bool kMin>
struct Extreme {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (!std::is_floating_point_v<hn::TFromV<V>>) {
      return kMin ? hn::Min(a, b) : hn::Max(a, b);
    } else {
      const V chosen = hn::IfThenElse(kMin ? hn::Lt(a, b) : hn::Gt(a, b), a, b);
      const V number = hn::IfThenElse(hn::Eq(a, b), kMin ? hn::Or(a, b) : hn::And(a, b), chosen);
      return canonical(hn::IfThenElse(hn::IsNaN(a), a, number));
    }
  }
};
using MinLanes = Extreme<true>;
using MaxLanes = Extreme<false>;

// Calls use() with the operation on floats.
template <class Use>
HWY_INLINE std::size_t with_float_op(ReduceOp op, Use use) {
  switch (op) {
    case ReduceOp::min: return use(MinLanes());
    case ReduceOp::max: return use(MaxLanes());
    case ReduceOp::prod: return use(kMultiply);
    default: return use(kAdd);
  }
}

// A bitwise operation on bytes that are 0 or nonzero.
template <class Op>
HWY_INLINE auto of_truths(Op op) {
  return [=](auto a, auto b) HWY_ATTR {
    const auto one = hn::Set(hn::DFromV<decltype(a)>(), 1);
    return op(hn::Min(a, one), hn::Min(b, one));
  };
}

// ---- Whole vectors. Each function returns the number of elements it processed; the reference does the rest.

#if QCCL_SCALAR

template <class T, class Op>
std::size_t combine_arrays(Op, void*, const void*, const void*, std::size_t) {
  return 0;
}
template <class Tag, class Use>
std::size_t each_vector(Tag, std::size_t, Use) {
  return 0;
}

#else

// Combines whole pairs of vectors.
template <class T, class Op>
HWY_INLINE std::size_t combine_arrays(Op op, void* target, const void* a, const void* b, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* to = static_cast<T*>(target);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto first = op(hn::LoadU(d, left + i), hn::LoadU(d, right + i));
    const auto second = op(hn::LoadU(d, left + i + lanes), hn::LoadU(d, right + i + lanes));
    hn::StoreU(first, d, to + i);
    hn::StoreU(second, d, to + i + lanes);
  }
  return i;
}

// Calls use(i) for the first index of each whole vector of n elements.
template <class Tag, class Use>
HWY_INLINE std::size_t each_vector(Tag d, std::size_t n, Use use) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) use(i);
  return i;
}

#endif

// Calls use() with the converter of the 16-bit type.
template <class Use>
HWY_INLINE std::size_t with_half_lanes(DataType type, Use use) {
  return type == DataType::float16 ? use(Float16Lanes()) : use(BFloat16Lanes());
}

// ----

template <class T>
void reduce_floats(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  const std::size_t done =
      with_float_op(op, [=](auto combine) HWY_ATTR { return combine_arrays<T>(combine, target, a, b, n); });
  reference::reduce<T>(op, target, a, b, done, n);
}

// For integers of every width.
std::size_t combine_bits(ReduceOp op, void* target, const void* a, const void* b, std::size_t bytes) {
  if (op == ReduceOp::bit_and) return combine_arrays<std::uint8_t>(kAnd, target, a, b, bytes);
  if (op == ReduceOp::bit_or) return combine_arrays<std::uint8_t>(kOr, target, a, b, bytes);
  return combine_arrays<std::uint8_t>(kXor, target, a, b, bytes);
}

// min and max, the only operations that depend on the sign.
template <class T>
void reduce_by_order(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  const std::size_t done = op == ReduceOp::min ? combine_arrays<T>(MinLanes(), target, a, b, n)
                                               : combine_arrays<T>(MaxLanes(), target, a, b, n);
  reference::reduce<T>(op, target, a, b, done, n);
}

template <class T>
void reduce_integers(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  static_assert(std::is_unsigned_v<T>);
  std::size_t done = 0;
  if (reference::adds(op)) {
    done = combine_arrays<T>(kAdd, target, a, b, n);
  } else if (op != ReduceOp::prod) {
    done = combine_bits(op, target, a, b, n * sizeof(T)) / sizeof(T);
  } else if constexpr (sizeof(T) > 1) {  // no instruction set multiplies bytes
    done = combine_arrays<T>(kMultiply, target, a, b, n);
  }
  reference::reduce<T>(op, target, a, b, done, n);
}

template <class Signed>
void reduce_integers(bool is_signed, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  using Unsigned = std::make_unsigned_t<Signed>;
  if (op != ReduceOp::min && op != ReduceOp::max) return reduce_integers<Unsigned>(op, target, a, b, n);
  if (is_signed) return reduce_by_order<Signed>(op, target, a, b, n);
  reduce_by_order<Unsigned>(op, target, a, b, n);
}

void reduce_booleans(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  using Byte = std::uint8_t;
  std::size_t done = 0;
  switch (reference::logical(op)) {
    case ReduceOp::bit_and: done = combine_arrays<Byte>(of_truths(kAnd), target, a, b, n); break;
    case ReduceOp::bit_or: done = combine_arrays<Byte>(of_truths(kOr), target, a, b, n); break;
    default: done = combine_arrays<Byte>(of_truths(kXor), target, a, b, n); break;
  }
  reference::reduce_booleans(op, target, a, b, done, n);
}

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  switch (type) {
    case DataType::float32: return reduce_floats<float>(op, target, a, b, n);
    case DataType::float64: return reduce_floats<double>(op, target, a, b, n);
    case DataType::int8:
    case DataType::uint8: return reduce_integers<std::int8_t>(type == DataType::int8, op, target, a, b, n);
    case DataType::int16:
    case DataType::uint16: return reduce_integers<std::int16_t>(type == DataType::int16, op, target, a, b, n);
    case DataType::int32:
    case DataType::uint32: return reduce_integers<std::int32_t>(type == DataType::int32, op, target, a, b, n);
    case DataType::int64:
    case DataType::uint64: return reduce_integers<std::int64_t>(type == DataType::int64, op, target, a, b, n);
    case DataType::boolean: return reduce_booleans(op, target, a, b, n);
    case DataType::float16:
    case DataType::bfloat16: return;  // reduce.h: the caller widens first
  }
}

void widen(DataType type, float* target, const void* source, std::size_t n) {
  const auto* from = static_cast<const std::uint16_t*>(source);
  const std::size_t done = with_half_lanes(type, [=](auto lanes) HWY_ATTR {
    return each_vector(FloatTag(), n,
                       [=](std::size_t i) HWY_ATTR { hn::StoreU(lanes.load(from + i), FloatTag(), target + i); });
  });
  reference::widen(type, target, source, done, n);
}

void narrow(DataType type, void* target, const float* source, std::size_t n) {
  auto* to = static_cast<std::uint16_t*>(target);
  const std::size_t done = with_half_lanes(type, [=](auto lanes) HWY_ATTR {
    return each_vector(FloatTag(), n,
                       [=](std::size_t i) HWY_ATTR { lanes.store(hn::LoadU(FloatTag(), source + i), to + i); });
  });
  reference::narrow(type, target, source, done, n);
}

void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  const auto* halves = static_cast<const std::uint16_t*>(b);
  const std::size_t done = with_float_op(op, [=](auto combine) HWY_ATTR {
    return with_half_lanes(type, [=](auto lanes) HWY_ATTR {
      return each_vector(FloatTag(), n, [=](std::size_t i) HWY_ATTR {
        hn::StoreU(combine(hn::LoadU(FloatTag(), a + i), lanes.load(halves + i)), FloatTag(), target + i);
      });
    });
  });
  reference::reduce_widened(type, op, target, a, b, done, n);
}

void widen_exactly(DataType type, float* target, const void* source, std::size_t n) {
  const auto* from = static_cast<const std::uint16_t*>(source);
  const std::size_t done = with_half_lanes(type, [=](auto lanes) HWY_ATTR {
    return each_vector(FloatTag(), n, [=](std::size_t i) HWY_ATTR {
      hn::StoreU(lanes.load_exactly(from + i), FloatTag(), target + i);
    });
  });
  reference::widen_exactly(type, target, source, done, n);
}

// A vector with a NaN goes through the reference.
void narrow_exactly(DataType type, void* target, const float* source, std::size_t n) {
  auto* to = static_cast<std::uint16_t*>(target);
  const std::size_t done = with_half_lanes(type, [=](auto lanes) HWY_ATTR {
    return each_vector(FloatTag(), n, [=](std::size_t i) HWY_ATTR {
      const FloatTag d;
      const Floats values = hn::LoadU(d, source + i);
      lanes.store(values, to + i);
      if (hn::AllFalse(d, hn::IsNaN(values))) return;
      for (std::size_t at = i; at < i + hn::Lanes(d); ++at) {
        reference::store_at(target, at, reference::narrow_exactly(type, reference::load_at<std::uint32_t>(source, at)));
      }
    });
  });
  reference::narrow_exactly(type, target, source, done, n);
}

template <class T>
void divide_typed(void* data, T divisor, std::size_t n) {
  const hn::ScalableTag<T> d;
  auto* values = static_cast<T*>(data);
  const std::size_t done = each_vector(d, n, [=](std::size_t i) HWY_ATTR {
    hn::StoreU(canonical(hn::Div(hn::LoadU(d, values + i), hn::Set(d, divisor))), d, values + i);
  });
  reference::divide<T>(divisor, data, done, n);
}

void divide(DataType type, void* data, double divisor, std::size_t n) {
  if (type == DataType::float32) return divide_typed<float>(data, static_cast<float>(divisor), n);
  if (type == DataType::float64) return divide_typed<double>(data, divisor, n);
}

template <class T>
void scale_typed(T factor, void* target, const void* source, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(target);
  const std::size_t done = each_vector(d, n, [=](std::size_t i) HWY_ATTR {
    hn::StoreU(canonical(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor))), d, to + i);
  });
  reference::scale<T>(factor, target, source, done, n);
}

void scale(DataType type, void* target, const void* source, double factor, std::size_t n) {
  const auto narrow_factor = static_cast<float>(factor);
  if (type == DataType::float32) return scale_typed<float>(narrow_factor, target, source, n);
  if (type == DataType::float64) return scale_typed<double>(factor, target, source, n);
  const auto* from = static_cast<const std::uint16_t*>(source);
  auto* to = static_cast<std::uint16_t*>(target);
  const std::size_t done = with_half_lanes(type, [=](auto lanes) HWY_ATTR {
    return each_vector(FloatTag(), n, [=](std::size_t i) HWY_ATTR {
      lanes.store(hn::Mul(lanes.load(from + i), hn::Set(FloatTag(), narrow_factor)), to + i);
    });
  });
  reference::scale_halves(type, narrow_factor, target, source, done, n);
}

void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n) {
  const FloatTag d;
  const std::size_t done = each_vector(d, n, [=](std::size_t i) HWY_ATTR {
    const auto left = hn::Mul(hn::Sub(hn::LoadU(d, value + i), hn::LoadU(d, sent + i)), hn::Set(d, factor));
    hn::StoreU(hn::IfThenElse(hn::IsFinite(left), left, hn::LoadU(d, residual + i)), d, residual + i);
  });
  reference::keep_residual(value, sent, factor, residual, done, n);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, reduce, (DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n),
            (type, op, target, a, b, n))
QCCL_KERNEL(void, widen, (DataType type, float* target, const void* source, std::size_t n), (type, target, source, n))
QCCL_KERNEL(void, reduce_widened,
            (DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n),
            (type, op, target, a, b, n))
QCCL_KERNEL(void, narrow, (DataType type, void* target, const float* source, std::size_t n), (type, target, source, n))
QCCL_KERNEL(void, widen_exactly, (DataType type, float* target, const void* source, std::size_t n),
            (type, target, source, n))
QCCL_KERNEL(void, narrow_exactly, (DataType type, void* target, const float* source, std::size_t n),
            (type, target, source, n))
QCCL_KERNEL(void, divide, (DataType type, void* data, double divisor, std::size_t n), (type, data, divisor, n))
QCCL_KERNEL(void, scale, (DataType type, void* target, const void* source, double factor, std::size_t n),
            (type, target, source, factor, n))
QCCL_KERNEL(void, keep_residual, (const float* value, const float* sent, float factor, float* residual, std::size_t n),
            (value, sent, factor, residual, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
