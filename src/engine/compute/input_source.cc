#include "engine/compute/input_source.h"

#include "kernels/reduce/reduce.h"

namespace qccl::engine {

const std::byte* InputSource::take(const MathContext& context, const std::byte* input, std::size_t elements) {
  const bool is_scaled = context.op == ReduceOp::premul_sum && elements > 0;
  if (context.residuals == nullptr && !is_scaled) return input;
  if (!changed_.valid()) changed_ = context.pool->take();
  if (is_current_) return changed_.bytes();
  is_current_ = true;
  if (context.residuals != nullptr) {
    add_residual(context, input, elements);
  } else {
    kernels::scale(context.type, changed_.bytes(), input, context.premul_factor, elements);
  }
  return changed_.bytes();
}

void InputSource::add_residual(const MathContext& context, const std::byte* input, std::size_t elements) {
  ScratchPool::Buffer scaled;
  if (context.op == ReduceOp::premul_sum) {
    scaled = context.pool->take();
    kernels::scale(context.type, scaled.bytes(), input, context.premul_factor, elements);
    input = scaled.bytes();
  }
  const float* const residual = context.residuals + first_element_;
  if (context.type == DataType::float32) {
    kernels::reduce(context.type, ReduceOp::sum, changed_.bytes(), input, residual, elements);
  } else {
    kernels::reduce_widened(context.type, ReduceOp::sum, changed_.floats(), residual, input, elements);
  }
}

}  // namespace qccl::engine
