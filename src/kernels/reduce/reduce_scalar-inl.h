// reduce.h for the target without vectors: the reference itself.

#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n) {
  switch (type) {
    case DataType::float32: return reference::reduce<float>(op, target, a, b, 0, n);
    case DataType::float64: return reference::reduce<double>(op, target, a, b, 0, n);
    case DataType::int32: return reference::reduce<std::int32_t>(op, target, a, b, 0, n);
    case DataType::int64: return reference::reduce<std::int64_t>(op, target, a, b, 0, n);
    case DataType::uint8: return reference::reduce<std::uint8_t>(op, target, a, b, 0, n);
    case DataType::int8: return reference::reduce<std::int8_t>(op, target, a, b, 0, n);
    case DataType::int16: return reference::reduce<std::int16_t>(op, target, a, b, 0, n);
    case DataType::uint16: return reference::reduce<std::uint16_t>(op, target, a, b, 0, n);
    case DataType::uint32: return reference::reduce<std::uint32_t>(op, target, a, b, 0, n);
    case DataType::uint64: return reference::reduce<std::uint64_t>(op, target, a, b, 0, n);
    case DataType::boolean: return reference::reduce_booleans(op, target, a, b, 0, n);
    case DataType::float16:
    case DataType::bfloat16: return;  // reduce.h: the caller widens first
  }
}

void widen(DataType type, float* target, const void* source, std::size_t n) {
  reference::widen(type, target, source, 0, n);
}

void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n) {
  reference::reduce_widened(type, op, target, a, b, 0, n);
}

void narrow(DataType type, void* target, const float* source, std::size_t n) {
  reference::narrow(type, target, source, 0, n);
}

void divide(DataType type, void* data, double divisor, std::size_t n) {
  if (type == DataType::float32) return reference::divide<float>(static_cast<float>(divisor), data, 0, n);
  if (type == DataType::float64) return reference::divide<double>(divisor, data, 0, n);
}

void scale(DataType type, void* target, const void* source, double factor, std::size_t n) {
  if (type == DataType::float32) return reference::scale<float>(static_cast<float>(factor), target, source, 0, n);
  if (type == DataType::float64) return reference::scale<double>(factor, target, source, 0, n);
  reference::scale_halves(type, static_cast<float>(factor), target, source, 0, n);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
