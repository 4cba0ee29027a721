#include "engine/compute/slice_accumulator.h"

#include "kernels/reduce/reduce.h"

namespace qccl::engine {

void SliceAccumulator::begin(int expected, std::uint64_t first_element) {
  first_element_ = first_element;
  expected_ = expected;
  added_ = 0;
  pending_ = nullptr;
}

float* SliceAccumulator::accumulator(const MathContext& context) {
  if (!accumulator_.valid()) accumulator_ = context.pool->take();
  return accumulator_.floats();
}

// ---- parts

void SliceAccumulator::add_raw(const MathContext& context, const std::byte* part, std::byte* output,
                               std::size_t elements) {
  ++added_;
  if (added_ == 1) {
    pending_ = part;
    return;
  }
  std::byte* target = output;
  if (added_ != expected_) target = reinterpret_cast<std::byte*>(accumulator(context));
  kernels::reduce(context.type, context.op, target, pending_, part, elements);
  pending_ = target;
}

void SliceAccumulator::add_widened(const MathContext& context, const std::byte* part, std::size_t elements) {
  float* sum = accumulator(context);
  ++added_;
  if (context.is_16_bit()) {
    if (added_ == 1) {
      kernels::widen(context.type, sum, part, elements);
    } else {
      kernels::reduce_widened(context.type, context.op, sum, sum, part, elements);
    }
  } else if (added_ == 1) {
    copy_bytes(sum, part, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, context.op, sum, sum, part, elements);
  }
}

// The slice is floats already. What is not encoded in this lane leaves no residual.
void SliceAccumulator::add_with_residual(const MathContext& context, const float* values, std::size_t elements) {
  float* sum = accumulator(context);
  if (++added_ == 1) {
    copy_bytes(sum, values, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, ReduceOp::sum, sum, sum, values, elements);
  }
  if (!encodes_) keep_residual(context, first_element_, values, values, elements);
}

void SliceAccumulator::add_input(const MathContext& context, const std::byte* input, std::byte* output,
                                 std::size_t elements) {
  if (context.residuals != nullptr) {
    add_with_residual(context, reinterpret_cast<const float*>(input), elements);
  } else if (context.widens()) {
    add_widened(context, input, elements);
  } else {
    add_raw(context, input, output, elements);
  }
}

Status SliceAccumulator::add_encoded(const MathContext& context, ConstBytes payload, std::size_t elements) {
  const std::span<float> sum(accumulator(context), elements);
  ++added_;
  if (added_ == 1) return context.codec->decode(payload, sum);
  return context.codec->decode_add(payload, sum, sum);
}

Status SliceAccumulator::add_payload(const MathContext& context, ConstBytes payload, std::byte* output,
                                     std::size_t elements, bool raw) {
  if (context.codec != nullptr && !raw) return add_encoded(context, payload, elements);
  QCCL_TRY(check_raw_size(context, payload, elements));
  if (context.widens()) {
    add_widened(context, payload.data(), elements);
  } else {
    add_raw(context, payload.data(), output, elements);
  }
  return {};
}

// ---- the sum

ConstBytes SliceAccumulator::raw_sum(const MathContext& context, std::size_t elements) const {
  if (context.widens()) return {};
  return {pending_, elements * context.element_size()};
}

std::size_t SliceAccumulator::encode_sum(const MathContext& context, SliceEncoder& encoder, std::size_t elements,
                                         Bytes payload, bool keep) {
  float* sum = accumulator(context);
  const std::size_t bytes = encoder.encode_sum(context, sum, elements, payload);
  if (keep && context.codec == nullptr) kernels::widen(context.type, sum, payload.data(), elements);
  return bytes;
}

float* SliceAccumulator::averaged(const MathContext& context, std::size_t elements) {
  float* sum = accumulator(context);
  if (context.op == ReduceOp::avg) kernels::divide(DataType::float32, sum, context.world, elements);
  return sum;
}

void SliceAccumulator::finish(const MathContext& context, std::byte* output, std::size_t elements) {
  if (!context.widens()) return finish_raw(context, output, elements);
  write_values(context, averaged(context, elements), output, elements);
}

void SliceAccumulator::finish_raw(const MathContext& context, std::byte* output, std::size_t elements) {
  if (context.type == DataType::boolean && added_ == 1) {  // nothing has made them 0 or 1 yet
    kernels::reduce(context.type, ReduceOp::bit_or, output, pending_, pending_, elements);
  } else {
    copy_bytes(output, pending_, elements * context.element_size());
  }
  if (context.op == ReduceOp::avg) kernels::divide(context.type, output, context.world, elements);
}

Status SliceAccumulator::finish_encoded(const MathContext& context, SliceEncoder& encoder, std::byte* output,
                                        std::size_t elements) {
  return encoder.encode_result(context, averaged(context, elements), output, elements);
}

}  // namespace qccl::engine
