#include "engine/compute/math_context.h"

#include <fmt/format.h>

#include "kernels/copy.h"
#include "kernels/reduce/exact_half.h"
#include "kernels/reduce/reduce.h"

namespace qccl::engine {

void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (target != source) kernels::copy(target, source, bytes);
}

void write_values(const MathContext& context, const float* values, std::byte* output, std::size_t elements) {
  if (!context.is_16_bit()) return copy_bytes(output, values, elements * sizeof(float));
  const bool exact = context.codec != nullptr && context.codec->is_exact();
  (exact ? kernels::narrow_exactly : kernels::narrow)(context.type, output, values, elements);
}

Status check_raw_size(const MathContext& context, ConstBytes payload, std::size_t elements) {
  const std::size_t bytes = elements * context.element_size();
  if (payload.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("a slice of {} bytes came as {}", bytes, payload.size()));
}

void keep_residual(const MathContext& context, std::uint64_t first_element, const float* values, const float* sent,
                   std::size_t elements, float factor) {
  kernels::keep_residual(values, sent, factor, context.residuals + first_element, elements);
}

}  // namespace qccl::engine
