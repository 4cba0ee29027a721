#include "engine/compute/slice_encoder.h"

#include "base/check.h"
#include "kernels/reduce/exact_half.h"
#include "kernels/reduce/reduce.h"

namespace qccl::engine {
namespace {

bool holds_floats(DataType type, const std::byte* slice) {
  return type == DataType::float32 && reinterpret_cast<std::uintptr_t>(slice) % alignof(float) == 0;
}

}  // namespace

float* SliceEncoder::converted(const MathContext& context) {
  if (!converted_.valid()) converted_ = context.pool->take();
  return converted_.floats();
}

Bytes SliceEncoder::own_room(const MathContext& context) {
  if (!encoded_.valid()) encoded_ = context.pool->take();
  return {encoded_.bytes(), kScratchBytes};
}

// The slice as aligned floats: in place where it already is that.
const float* SliceEncoder::as_floats(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.residuals != nullptr) return reinterpret_cast<const float*>(input);
  if (holds_floats(context.type, input)) return reinterpret_cast<const float*>(input);
  float* floats = converted(context);
  if (context.is_16_bit()) {
    kernels::widen_exactly(context.type, floats, input, elements);  // if a NaN loses its payload, then in the codec
  } else {
    copy_bytes(floats, input, elements * sizeof(float));
  }
  return floats;
}

RandomStream SliceEncoder::random_of(const MathContext& context, std::uint64_t key) const {
  return {.key = key,
          .first_element = first_element_,
          .rank = static_cast<std::uint32_t>(context.rank.value()),
          .world = static_cast<std::uint32_t>(context.world)};
}

std::size_t SliceEncoder::encode_floats(const MathContext& context, std::uint64_t key, std::span<const float> values,
                                        Bytes payload) const {
  const std::size_t bytes = context.codec->encode(values, payload, random_of(context, key));
  QCCL_CHECK(bytes <= payload.size());
  return bytes;
}

// ---- input

std::size_t SliceEncoder::encode(const MathContext& context, const std::byte* input, std::size_t elements,
                                 Bytes payload) {
  if (context.codec == nullptr) {
    const std::size_t bytes = elements * context.element_size();
    copy_bytes(payload.data(), input, bytes);
    return bytes;
  }
  if (context.residuals != nullptr) {
    const ConstBytes ready = encode_once(context, input, elements);
    copy_bytes(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  return encode_floats(context, context.keys.input, {as_floats(context, input, elements), elements}, payload);
}

ConstBytes SliceEncoder::encode_once(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.codec == nullptr) return {input, elements * context.element_size()};
  if (is_current_) return encoded();
  is_current_ = true;
  if (context.residuals != nullptr) {
    return encode_with_residual(context, as_floats(context, input, elements), elements, {.key = context.keys.input});
  }
  encoded_bytes_ = encode(context, input, elements, own_room(context));
  return encoded();
}

ConstBytes SliceEncoder::raw_input(const MathContext& context, const std::byte* input, std::size_t elements) {
  if (context.residuals == nullptr) return {input, elements * context.element_size()};
  return raw_input_with_residual(context, as_floats(context, input, elements), elements);
}

// ---- sums

// Sums that an exact codec sends are rounded as without a codec: the results are the same bits, and take fewer bytes.
void SliceEncoder::round_for_exact(const MathContext& context, float* sum, std::size_t elements) {
  if (context.codec == nullptr || !context.codec->is_exact() || !context.is_16_bit()) return;
  float* narrowed = converted(context);
  kernels::narrow(context.type, narrowed, sum, elements);
  kernels::widen(context.type, sum, narrowed, elements);
}

std::size_t SliceEncoder::encode_sum(const MathContext& context, float* sum, std::size_t elements, Bytes payload) {
  if (context.residuals != nullptr) {
    const ConstBytes ready = encode_with_residual(context, sum, elements, {.key = context.keys.hop});
    copy_bytes(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  round_for_exact(context, sum, elements);
  if (context.codec != nullptr) return encode_floats(context, context.keys.hop, {sum, elements}, payload);
  write_values(context, sum, payload.data(), elements);
  return elements * context.element_size();
}

Status SliceEncoder::encode_result(const MathContext& context, float* sum, std::byte* output, std::size_t elements) {
  if (context.residuals != nullptr) return encode_result_with_residual(context, sum, output, elements);
  round_for_exact(context, sum, elements);
  encoded_bytes_ = encode_floats(context, context.keys.owner, {sum, elements}, own_room(context));
  if (output == nullptr) return {};
  return decode(context, encoded(), output, elements, false);
}

// ---- payloads

Status SliceEncoder::decode(const MathContext& context, ConstBytes payload, std::byte* output, std::size_t elements,
                            bool raw) {
  if (context.codec == nullptr || raw) {
    QCCL_TRY(check_raw_size(context, payload, elements));
    copy_bytes(output, payload.data(), payload.size());
    return {};
  }
  if (holds_floats(context.type, output)) {
    return context.codec->decode(payload, {reinterpret_cast<float*>(output), elements});
  }
  float* floats = converted(context);
  QCCL_TRY(context.codec->decode(payload, {floats, elements}));
  write_values(context, floats, output, elements);
  return {};
}

void SliceEncoder::release() {
  converted_.reset();
  encoded_.reset();
}

// ---- error feedback

ConstBytes SliceEncoder::encode_with_residual(const MathContext& context, const float* values, std::size_t elements,
                                              const ResidualEncoding& how) {
  const Bytes room = own_room(context);
  float* const residual = context.residuals + first_element_;
  const auto written =
      context.codec->encode_with_residual({values, elements}, room, random_of(context, how.key), how.factor, residual);
  encoded_bytes_ = written ? *written : encode_floats(context, how.key, {values, elements}, room);
  QCCL_CHECK(encoded_bytes_ <= room.size());
  if (written && how.decoded == nullptr) return encoded();
  float* const decoded = how.decoded != nullptr ? how.decoded : converted(context);
  QCCL_CHECK(context.codec->decode(encoded(), {decoded, elements}).ok());
  if (!written) keep_residual(context, first_element_, values, decoded, elements, how.factor);
  return encoded();
}

Status SliceEncoder::encode_result_with_residual(const MathContext& context, const float* sum, std::byte* output,
                                                 std::size_t elements) {
  ResidualEncoding how{.key = context.keys.owner};
  if (context.op == ReduceOp::avg) how.factor = static_cast<float>(context.world);
  const bool in_place = output != nullptr && holds_floats(context.type, output);
  if (in_place) how.decoded = reinterpret_cast<float*>(output);
  if (output != nullptr && !in_place) how.decoded = converted(context);
  encode_with_residual(context, sum, elements, how);
  if (output != nullptr && !in_place) write_values(context, how.decoded, output, elements);
  return {};
}

// A 16-bit type rounds what is sent.
ConstBytes SliceEncoder::raw_input_with_residual(const MathContext& context, const float* values,
                                                 std::size_t elements) {
  const std::size_t bytes = elements * context.element_size();
  if (context.type == DataType::float32) {
    keep_residual(context, first_element_, values, values, elements);
    return {reinterpret_cast<const std::byte*>(values), bytes};
  }
  float* narrowed = converted(context);
  float* sent = narrowed + elements;
  kernels::narrow(context.type, narrowed, values, elements);
  kernels::widen(context.type, sent, narrowed, elements);
  keep_residual(context, first_element_, values, sent, elements);
  return {converted_.bytes(), bytes};
}

}  // namespace qccl::engine
