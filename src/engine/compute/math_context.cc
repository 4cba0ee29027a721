#include "engine/compute/math_context.h"

#include <fmt/format.h>

#include "kernels/copy.h"
#include "kernels/reduce/exact_half.h"
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

}  // namespace qccl::engine
