#include "engine/compute/input_source.h"

#include "kernels/reduce/reduce.h"

namespace qccl::engine {

const std::byte* InputSource::take(const std::byte* input, std::size_t elements) {
  const bool is_scaled = math_.op == ReduceOp::premul_sum && elements > 0;
  if (math_.residuals == nullptr && !is_scaled) return input;
  if (changed_ == nullptr) changed_ = math_.pool->take();
  if (is_current_) return changed_.get();
  is_current_ = true;
  if (math_.residuals != nullptr) {
    add_residual(input, elements);
  } else {
    kernels::scale(math_.type, changed_.get(), input, math_.premul_factor, elements);
  }
  return changed_.get();
}

void InputSource::add_residual(const std::byte* input, std::size_t elements) {
  ScratchPool::Buffer scaled;
  if (math_.op == ReduceOp::premul_sum) {
    scaled = math_.pool->take();
    kernels::scale(math_.type, scaled.get(), input, math_.premul_factor, elements);
    input = scaled.get();
  }
  const float* const residual = math_.residuals + first_element_;
  if (math_.type == DataType::float32) {
    kernels::reduce(math_.type, ReduceOp::sum, changed_.get(), input, residual, elements);
  } else {
    kernels::reduce_widened(math_.type, ReduceOp::sum, floats(changed_), residual, input, elements);
  }
}

}  // namespace qccl::engine
