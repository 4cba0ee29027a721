#include "engine/compute/lane_math.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/copy.h"
#include "kernels/reduce/exact_half.h"
#include "kernels/reduce/reduce.h"

namespace qccl::engine {
namespace {

bool is_16_bit(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

Status check_size(ConstBytes payload, std::size_t bytes) {
  if (payload.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("a slice of {} bytes came as {}", bytes, payload.size()));
}

// The two are the same or do not overlap.
void copy(void* target, const void* source, std::size_t bytes) {
  if (target != source) kernels::copy(target, source, bytes);
}

}  // namespace

bool LaneMath::widens(const MathContext& context) const { return context.codec != nullptr || is_16_bit(context.type); }

bool LaneMath::holds_floats(DataType type, const std::byte* slice) {
  return type == DataType::float32 && reinterpret_cast<std::uintptr_t>(slice) % alignof(float) == 0;
}

float* LaneMath::converted(const MathContext& context) {
  if (!converted_.valid()) converted_ = context.pool->take();
  return converted_.floats();
}

// The caller's slice as aligned floats: in place where it already is that.
const float* LaneMath::as_floats(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.residuals != nullptr) return reinterpret_cast<const float*>(input);
  if (holds_floats(context.type, input)) return reinterpret_cast<const float*>(input);
  float* floats = converted(context);
  if (is_16_bit(context.type)) {
    kernels::widen_exactly(context.type, floats, input, elements);  // if a NaN loses its payload, then in the codec
  } else {
    copy(floats, input, elements * sizeof(float));
  }
  return floats;
}

const std::byte* LaneMath::own_input(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.residuals != nullptr) return owed_input(context, input, elements);
  if (context.op != ReduceOp::premul_sum || elements == 0) return input;
  if (!scaled_.valid()) scaled_ = context.pool->take();
  if (!scaled_is_current_) kernels::scale(context.type, scaled_.bytes(), input, context.premul_factor, elements);
  scaled_is_current_ = true;
  return scaled_.bytes();
}

Draw LaneMath::draw_of(const MathContext& context, std::uint64_t key) const {
  return {.key = key,
          .first_element = first_element_,
          .rank = static_cast<std::uint32_t>(context.rank),
          .world = static_cast<std::uint32_t>(context.world)};
}

std::size_t LaneMath::encode_floats(const MathContext& context, std::uint64_t key, std::span<const float> values,
                                    Bytes payload) const {
  const std::size_t bytes = context.codec->encode(values, payload, draw_of(context, key));
  QCCL_CHECK(bytes <= payload.size());
  return bytes;
}

std::size_t LaneMath::encode(const MathContext& context, const std::byte* input, std::size_t elements, Bytes payload) {
  if (context.codec == nullptr) return copy_raw(context, input, elements, payload);
  if (context.residuals != nullptr) {
    const ConstBytes ready = encode_once(context, input, elements);
    copy(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  return encode_floats(context, context.keys.input, {as_floats(context, input, elements), elements}, payload);
}

std::size_t LaneMath::copy_raw(const MathContext& context, const std::byte* input, std::size_t elements,
                               Bytes payload) {
  const std::size_t bytes = elements * context.element_size();
  copy(payload.data(), input, bytes);
  return bytes;
}

ConstBytes LaneMath::raw_input(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.residuals != nullptr) return raw_owed(context, as_floats(context, input, elements), elements);
  return {input, elements * context.element_size()};
}

ConstBytes LaneMath::encode_once(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.codec == nullptr) return {input, elements * context.element_size()};
  if (encoded_is_current_) return encoded();
  encoded_is_current_ = true;
  if (context.residuals != nullptr) {
    return encode_with_residual(context, as_floats(context, input, elements), elements, {.key = context.keys.input});
  }
  if (!encoded_.valid()) encoded_ = context.pool->take();
  encoded_bytes_ = encode(context, input, elements, {encoded_.bytes(), kScratchBytes});
  return encoded();
}

void LaneMath::write_output(const MathContext& context, const float* values, std::byte* output, std::size_t elements) {
  if (is_16_bit(context.type)) {
    const bool exact = context.codec != nullptr && context.codec->is_exact();
    (exact ? kernels::narrow_exactly : kernels::narrow)(context.type, output, values, elements);
  } else {
    copy(output, values, elements * sizeof(float));
  }
}

Status LaneMath::decode(const MathContext& context, ConstBytes payload, std::byte* output, std::size_t elements,
                        bool raw) {
  if (context.codec == nullptr || raw) {
    QCCL_TRY(check_size(payload, elements * context.element_size()));
    if (payload.data() != output) copy(output, payload.data(), payload.size());
    return {};
  }
  if (holds_floats(context.type, output)) {
    return context.codec->decode(payload, {reinterpret_cast<float*>(output), elements});
  }
  float* floats = converted(context);
  QCCL_TRY(context.codec->decode(payload, {floats, elements}));
  write_output(context, floats, output, elements);
  return {};
}

void LaneMath::begin(int expected, std::uint64_t first_element) {
  first_element_ = first_element;
  expected_ = expected;
  added_ = 0;
  pending_ = nullptr;
  encoded_is_current_ = false;
  scaled_is_current_ = false;
}

float* LaneMath::accumulator(const MathContext& context) {
  if (!accumulator_.valid()) accumulator_ = context.pool->take();
  return accumulator_.floats();
}

// The first part is only remembered; the last sum goes straight to the output.
void LaneMath::add_raw(const MathContext& context, const std::byte* part, std::byte* output, std::size_t elements) {
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

void LaneMath::add_widened(const MathContext& context, const std::byte* part, std::size_t elements) {
  float* sum = accumulator(context);
  ++added_;
  if (is_16_bit(context.type)) {
    if (added_ == 1) {
      kernels::widen(context.type, sum, part, elements);
    } else {
      kernels::reduce_widened(context.type, context.op, sum, sum, part, elements);
    }
  } else if (added_ == 1) {
    copy(sum, part, elements * sizeof(float));
  } else {
    kernels::reduce(DataType::float32, context.op, sum, sum, part, elements);
  }
}

void LaneMath::add_input(const MathContext& context, const std::byte* input, std::byte* output, std::size_t elements) {
  if (context.residuals != nullptr) {
    add_owed(context, as_floats(context, input, elements), elements);
  } else if (widens(context)) {
    add_widened(context, input, elements);
  } else {
    add_raw(context, input, output, elements);
  }
}

Status LaneMath::add_encoded(const MathContext& context, ConstBytes payload, std::size_t elements) {
  const std::span<float> sum(accumulator(context), elements);
  ++added_;
  if (added_ == 1) return context.codec->decode(payload, sum);
  return context.codec->decode_add(payload, sum, sum);
}

Status LaneMath::add_quantized_input(const MathContext& context, const std::byte* input, std::size_t elements) {
  encode_once(context, input, elements);
  return add_encoded(context, encoded(), elements);
}

Status LaneMath::add_payload(const MathContext& context, ConstBytes payload, std::byte* output, std::size_t elements,
                             bool raw) {
  if (context.codec != nullptr && !raw) return add_encoded(context, payload, elements);
  QCCL_TRY(check_size(payload, elements * context.element_size()));
  if (widens(context)) {
    add_widened(context, payload.data(), elements);
  } else {
    add_raw(context, payload.data(), output, elements);
  }
  return {};
}

// Sums that an exact codec sends are rounded as without a codec: the results are the same bits, and take fewer bytes.
void LaneMath::round_for_exact(const MathContext& context, float* sum, std::size_t elements) {
  if (context.codec == nullptr || !context.codec->is_exact() || !is_16_bit(context.type)) return;
  float* narrowed = converted(context);
  kernels::narrow(context.type, narrowed, sum, elements);
  kernels::widen(context.type, sum, narrowed, elements);
}

ConstBytes LaneMath::raw_sum(const MathContext& context, std::size_t elements) const {
  if (widens(context)) return {};
  return {pending_, elements * context.element_size()};
}

std::size_t LaneMath::encode_sum(const MathContext& context, std::size_t elements, Bytes payload, bool keep) {
  float* sum = accumulator(context);
  if (context.residuals != nullptr) {
    const ConstBytes ready = encode_with_residual(context, sum, elements, {.key = context.keys.hop});
    copy(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  round_for_exact(context, sum, elements);
  if (context.codec != nullptr) return encode_floats(context, context.keys.hop, {sum, elements}, payload);
  write_output(context, sum, payload.data(), elements);
  if (keep) kernels::widen(context.type, sum, payload.data(), elements);
  return elements * context.element_size();
}

std::byte* LaneMath::scratch(const MathContext& context) {
  if (!scratch_.valid()) scratch_ = context.pool->take();
  return scratch_.bytes();
}

Status LaneMath::finish_raw(const MathContext& context, std::byte* output, std::size_t elements) {
  if (context.type == DataType::boolean && added_ == 1) {  // nothing has made them 0 or 1 yet
    kernels::reduce(context.type, ReduceOp::bit_or, output, pending_, pending_, elements);
  } else {
    copy(output, pending_, elements * context.element_size());
  }
  if (context.op == ReduceOp::avg) kernels::divide(context.type, output, context.world, elements);
  return {};
}

Status LaneMath::finish(const MathContext& context, std::byte* output, std::size_t elements, bool requantize) {
  if (!widens(context)) return finish_raw(context, output, elements);
  float* sum = accumulator(context);
  if (context.op == ReduceOp::avg) kernels::divide(DataType::float32, sum, context.world, elements);
  if (!requantize) {
    write_output(context, sum, output, elements);
    return {};
  }
  if (context.residuals != nullptr) return finish_owed(context, sum, output, elements);
  round_for_exact(context, sum, elements);
  if (!encoded_.valid()) encoded_ = context.pool->take();
  encoded_bytes_ = encode_floats(context, context.keys.owner, {sum, elements}, {encoded_.bytes(), kScratchBytes});
  if (output == nullptr) return {};
  return decode(context, encoded(), output, elements);
}

void LaneMath::release_buffers() {
  scaled_.reset();
  accumulator_.reset();
  converted_.reset();
  encoded_.reset();
  scratch_.reset();
}

}  // namespace qccl::engine
