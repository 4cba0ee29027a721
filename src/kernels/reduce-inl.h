// reduce.h in vectors. Per target.

#if defined(QCCL_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_REDUCE_INL_H_
#undef QCCL_KERNELS_REDUCE_INL_H_
#else
#define QCCL_KERNELS_REDUCE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/half-inl.h"
#include "kernels/reduce_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

struct SumLanes {
  static constexpr ReduceOp kOp = ReduceOp::sum;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return canonical(hn::Add(a, b));
  }
};

struct ProductLanes {
  static constexpr ReduceOp kOp = ReduceOp::prod;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return canonical(hn::Mul(a, b));
  }
};

// The lesser, where equal numbers are the same bits but for zeros: -0 | +0 is -0.
struct MinLanes {
  static constexpr ReduceOp kOp = ReduceOp::min;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (!std::is_floating_point_v<hn::TFromV<V>>) {
      return hn::Min(a, b);
    } else {
      const V lesser = hn::IfThenElse(hn::Lt(a, b), a, b);
      const V number = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), lesser);
      return canonical(hn::IfThenElse(hn::IsNaN(a), a, number));
    }
  }
};

struct MaxLanes {
  static constexpr ReduceOp kOp = ReduceOp::max;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (!std::is_floating_point_v<hn::TFromV<V>>) {
      return hn::Max(a, b);
    } else {
      const V greater = hn::IfThenElse(hn::Gt(a, b), a, b);
      const V number = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), greater);
      return canonical(hn::IfThenElse(hn::IsNaN(a), a, number));
    }
  }
};

template <class T, class Op>
HWY_INLINE void combine_arrays(Op op, void* target, const void* a, const void* b, std::size_t n) {
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
  reference::reduce<T>(Op::kOp, target, a, b, i, n);
}

template <class T>
void reduce_typed(ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return combine_arrays<T>(SumLanes(), target, a, b, n);
    case ReduceOp::min: return combine_arrays<T>(MinLanes(), target, a, b, n);
    case ReduceOp::max: return combine_arrays<T>(MaxLanes(), target, a, b, n);
    case ReduceOp::prod:
      if constexpr (sizeof(T) == 1) {
        return reference::reduce<T>(op, target, a, b, 0, n);  // no instruction set multiplies bytes
      } else {
        return combine_arrays<T>(ProductLanes(), target, a, b, n);
      }
  }
}

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  switch (type) {
    case DataType::float32: return reduce_typed<float>(op, target, a, b, n);
    case DataType::float64: return reduce_typed<double>(op, target, a, b, n);
    case DataType::int32: return reduce_typed<std::int32_t>(op, target, a, b, n);
    case DataType::int64: return reduce_typed<std::int64_t>(op, target, a, b, n);
    case DataType::uint8: return reduce_typed<std::uint8_t>(op, target, a, b, n);
    case DataType::float16:
    case DataType::bfloat16: return;  // reduce.h: widened first
  }
}

template <class Lanes>
HWY_INLINE std::size_t widen_vectors(float* target, const void* source, std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Lanes::load(static_cast<const std::uint16_t*>(source) + i), d, target + i);
  }
  return i;
}

void widen(DataType type, float* target, const void* source, std::size_t n) {
  const std::size_t done = type == DataType::float16 ? widen_vectors<Float16Lanes>(target, source, n)
                                                     : widen_vectors<BFloat16Lanes>(target, source, n);
  reference::widen(type, target, source, done, n);
}

template <class Lanes>
HWY_INLINE std::size_t narrow_vectors(void* target, const float* source, std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Lanes::store(hn::LoadU(d, source + i), static_cast<std::uint16_t*>(target) + i);
  }
  return i;
}

void narrow(DataType type, void* target, const float* source, std::size_t n) {
  const std::size_t done = type == DataType::float16 ? narrow_vectors<Float16Lanes>(target, source, n)
                                                     : narrow_vectors<BFloat16Lanes>(target, source, n);
  reference::narrow(type, target, source, done, n);
}

template <class Lanes, class Op>
HWY_INLINE std::size_t combine_widened(Op op, float* target, const float* a, const void* b, std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(op(hn::LoadU(d, a + i), Lanes::load(static_cast<const std::uint16_t*>(b) + i)), d, target + i);
  }
  return i;
}

template <class Lanes>
std::size_t combine_widened(ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return combine_widened<Lanes>(SumLanes(), target, a, b, n);
    case ReduceOp::min: return combine_widened<Lanes>(MinLanes(), target, a, b, n);
    case ReduceOp::max: return combine_widened<Lanes>(MaxLanes(), target, a, b, n);
    case ReduceOp::prod: return combine_widened<Lanes>(ProductLanes(), target, a, b, n);
  }
  return 0;
}

void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  const std::size_t done = type == DataType::float16 ? combine_widened<Float16Lanes>(op, target, a, b, n)
                                                     : combine_widened<BFloat16Lanes>(op, target, a, b, n);
  reference::reduce_widened(type, op, target, a, b, done, n);
}

template <class T>
void divide_typed(void* data, T divisor, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* values = static_cast<T*>(data);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(canonical(hn::Div(hn::LoadU(d, values + i), hn::Set(d, divisor))), d, values + i);
  }
  reference::divide<T>(divisor, data, i, n);
}

void divide(DataType type, void* data, double divisor, std::size_t n) {
  if (type == DataType::float32) return divide_typed<float>(data, static_cast<float>(divisor), n);
  if (type == DataType::float64) return divide_typed<double>(data, divisor, n);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
