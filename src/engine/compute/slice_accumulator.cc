#include "engine/compute/slice_accumulator.h"

#include "kernels/reduce/reduce.h"

namespace qccl::engine {

void SliceAccumulator::begin(int expected, std::uint64_t first_element) {
  first_element_ = first_element;
  expected_ = expected;
  added_ = 0;
  pending_ = nullptr;
}

float* SliceAccumulator::accumulator() {
  if (accumulator_ == nullptr) accumulator_ = math_.pool->take();
  return floats(accumulator_);
}

// ---- parts

void SliceAccumulator::add_raw(const std::byte* part, std::byte* output, std::size_t elements) {
  ++added_;
  if (added_ == 1) {
    pending_ = part;
    return;
  }
  std::byte* target = output;
  if (added_ != expected_) target = reinterpret_cast<std::byte*>(accumulator());
  kernels::reduce(math_.type, math_.op, target, pending_, part, elements);
  pending_ = target;
}

void SliceAccumulator::add_widened(const std::byte* part, std::size_t elements) {
  float* sum = accumulator();
  ++added_;
  if (math_.is_16_bit()) {
    if (added_ == 1) {
      kernels::widen(math_.type, sum, part, elements);
    } else {
      kernels::reduce_widened(math_.type, math_.op, sum, sum, part, elements);
    }
  } else if (added_ == 1) {
    copy_bytes(sum, part, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, math_.op, sum, sum, part, elements);
  }
}

// The slice is floats already. What is not encoded in this lane leaves no residual.
void SliceAccumulator::add_with_residual(const float* values, std::size_t elements) {
  float* sum = accumulator();
  if (++added_ == 1) {
    copy_bytes(sum, values, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, ReduceOp::sum, sum, sum, values, elements);
  }
  if (!encodes_) math_.keep_residual(first_element_, values, values, elements);
}

void SliceAccumulator::add_input(const std::byte* input, std::byte* output, std::size_t elements) {
  if (math_.residuals != nullptr) {
    add_with_residual(reinterpret_cast<const float*>(input), elements);
  } else if (math_.widens()) {
    add_widened(input, elements);
  } else {
    add_raw(input, output, elements);
  }
}

Status SliceAccumulator::add_encoded(ConstBytes payload, std::size_t elements) {
  const std::span<float> sum(accumulator(), elements);
  ++added_;
  if (added_ == 1) return math_.codec->decode(payload, sum);
  return math_.codec->decode_add(payload, sum, sum);
}

Status SliceAccumulator::add_payload(ConstBytes payload, std::byte* output, std::size_t elements, bool raw) {
  if (math_.codec != nullptr && !raw) return add_encoded(payload, elements);
  QCCL_TRY(math_.check_raw_size(payload, elements));
  if (math_.widens()) {
    add_widened(payload.data(), elements);
  } else {
    add_raw(payload.data(), output, elements);
  }
  return {};
}

// ---- the sum

ConstBytes SliceAccumulator::raw_sum(std::size_t elements) const {
  if (math_.widens()) return {};
  return {pending_, elements * math_.element_size()};
}

std::size_t SliceAccumulator::encode_sum(SliceEncoder& encoder, std::size_t elements, Bytes payload, bool keep) {
  float* sum = accumulator();
  const std::size_t bytes = encoder.encode_sum(sum, elements, payload);
  if (keep && math_.codec == nullptr) kernels::widen(math_.type, sum, payload.data(), elements);
  return bytes;
}

float* SliceAccumulator::averaged(std::size_t elements) {
  float* sum = accumulator();
  if (math_.op == ReduceOp::avg) kernels::divide(DataType::float32, sum, math_.world, elements);
  return sum;
}

void SliceAccumulator::finish(std::byte* output, std::size_t elements) {
  if (!math_.widens()) return finish_raw(output, elements);
  math_.write_values(averaged(elements), output, elements);
}

void SliceAccumulator::finish_raw(std::byte* output, std::size_t elements) {
  if (math_.type == DataType::boolean && added_ == 1) {  // nothing has made them 0 or 1 yet
    kernels::reduce(math_.type, ReduceOp::bit_or, output, pending_, pending_, elements);
  } else {
    copy_bytes(output, pending_, elements * math_.element_size());
  }
  if (math_.op == ReduceOp::avg) kernels::divide(math_.type, output, math_.world, elements);
}

Status SliceAccumulator::finish_encoded(SliceEncoder& encoder, std::byte* output, std::size_t elements) {
  return encoder.encode_result(averaged(elements), output, elements);
}

}  // namespace qccl::engine
