#include "engine/compute/math_context.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/copy.h"
#include "kernels/reduce/reduce.h"

namespace qccl::engine {

void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (target != source) kernels::copy(target, source, bytes);
}

void MathContext::write_values(const float* values, std::byte* output, std::size_t elements) const {
  if (!is_16_bit()) return copy_bytes(output, values, elements * sizeof(float));
  const bool exact = codec != nullptr && codec->is_exact();
  (exact ? kernels::narrow_exactly : kernels::narrow)(type, output, values, elements);
}

Status MathContext::check_raw_size(ConstBytes payload, std::size_t elements) const {
  const std::size_t bytes = elements * element_size();
  if (payload.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("a slice of {} bytes came as {}", bytes, payload.size()));
}

void MathContext::keep_residual(std::uint64_t first_element, const float* values, const float* sent,
                                std::size_t elements, float factor) const {
  kernels::keep_residual(values, sent, factor, residuals + first_element, elements);
}

const std::byte* InputSource::take(const std::byte* input, std::size_t elements) {
  const bool is_scaled = math_.op == ReduceOp::premul_sum && elements > 0;
  if (math_.residuals == nullptr && !is_scaled) return input;
  if (changed_ == nullptr) changed_ = math_.pool->take();
  if (std::exchange(is_current_, true)) return changed_.get();
  ScratchPool::Buffer scaled;
  if (is_scaled) {
    if (math_.residuals != nullptr) scaled = math_.pool->take();
    std::byte* const target = scaled != nullptr ? scaled.get() : changed_.get();
    kernels::scale(math_.type, target, input, math_.premul_factor, elements);
    input = target;
  }
  if (math_.residuals == nullptr) return changed_.get();
  const float* const residual = math_.residuals + first_element_;
  if (math_.type == DataType::float32) {
    kernels::reduce(math_.type, ReduceOp::sum, changed_.get(), input, residual, elements);
  } else {
    kernels::reduce_widened(math_.type, ReduceOp::sum, floats(changed_), residual, input, elements);
  }
  return changed_.get();
}

}  // namespace qccl::engine
