// The part of LaneMath that deals with error feedback (include/qccl/error_feedback.h).
//
// This rank's input is x + e throughout a lane. Wherever something that it is in is encoded here, as a part, a partial
// sum or the result, e becomes what the encoding took away; a lane in which this rank encodes nothing leaves no e. What
// is encoded is so in memory of the lane's own, and decoded from there: a frame's memory is shared with its receiver.
#include <cstring>

#include "base/check.h"
#include "engine/compute/lane_math.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/residual.h"

namespace qccl::engine {

const std::byte* LaneMath::owed_input(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (!scaled_.valid()) scaled_ = context.pool->take();
  if (scaled_is_current_) return scaled_.bytes();
  scaled_is_current_ = true;
  if (context.op == ReduceOp::premul_sum) {
    float* scaled = converted(context);
    kernels::scale(context.type, scaled, input, context.premul_factor, elements);
    input = reinterpret_cast<const std::byte*>(scaled);
  }
  const float* residual = context.residuals + first_element_;
  if (context.type == DataType::float32) {
    kernels::reduce(context.type, ReduceOp::sum, scaled_.bytes(), input, residual, elements);
  } else {
    kernels::reduce_widened(context.type, ReduceOp::sum, scaled_.floats(), residual, input, elements);
  }
  return scaled_.bytes();
}

void LaneMath::keep_residual(const MathContext& context, const float* values, const float* sent, std::size_t elements,
                             float factor) const {
  kernels::keep_residual(values, sent, factor, context.residuals + first_element_, elements);
}

ConstBytes LaneMath::encode_with_residual(const MathContext& context, const float* values, std::size_t elements,
                                          const OwedEncoding& how) {
  if (!encoded_.valid()) encoded_ = context.pool->take();
  const Bytes room{encoded_.bytes(), kScratchBytes};
  float* const residual = context.residuals + first_element_;
  const auto written =
      context.codec->encode_with_residual({values, elements}, room, draw_of(context, how.key), how.world, residual);
  encoded_bytes_ = written ? *written : encode_floats(context, how.key, {values, elements}, room);
  QCCL_CHECK(encoded_bytes_ <= room.size());
  if (written && how.decoded == nullptr) return encoded();
  float* const decoded = how.decoded != nullptr ? how.decoded : converted(context);
  QCCL_CHECK(context.codec->decode(encoded(), {decoded, elements}).ok());
  if (!written) keep_residual(context, values, decoded, elements, how.world);
  return encoded();
}

Status LaneMath::finish_owed(const MathContext& context, const float* sum, std::byte* output, std::size_t elements) {
  OwedEncoding how{.key = context.keys.owner};
  if (context.op == ReduceOp::avg) how.world = static_cast<float>(context.world);
  const bool in_place = output != nullptr && holds_floats(context.type, output);
  if (in_place) how.decoded = reinterpret_cast<float*>(output);
  if (output != nullptr && !in_place) how.decoded = converted(context);
  encode_with_residual(context, sum, elements, how);
  if (output != nullptr && !in_place) write_output(context, how.decoded, output, elements);
  return {};
}

// A 16-bit type rounds what is sent.
ConstBytes LaneMath::raw_owed(const MathContext& context, const float* values, std::size_t elements) {
  const std::size_t bytes = elements * context.element_size();
  if (context.type == DataType::float32) {
    keep_residual(context, values, values, elements);
    return {reinterpret_cast<const std::byte*>(values), bytes};
  }
  float* narrowed = converted(context);
  float* sent = narrowed + elements;
  kernels::narrow(context.type, narrowed, values, elements);
  kernels::widen(context.type, sent, narrowed, elements);
  keep_residual(context, values, sent, elements);
  return {converted_.bytes(), bytes};
}

void LaneMath::add_owed(const MathContext& context, const float* values, std::size_t elements) {
  float* sum = accumulator(context);
  if (++added_ == 1) {
    std::memcpy(sum, values, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, ReduceOp::sum, sum, sum, values, elements);
  }
  if (!encodes_) keep_residual(context, values, values, elements);
}

}  // namespace qccl::engine
