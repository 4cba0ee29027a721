#include "engine/compute/slice_encoder.h"

#include "base/log.h"
#include "kernels/reduce/reduce.h"

namespace qccl::engine {
namespace {

bool holds_floats(DataType type, const std::byte* slice) {
  return type == DataType::float32 && reinterpret_cast<std::uintptr_t>(slice) % alignof(float) == 0;
}

}  // namespace

float* SliceEncoder::converted() {
  if (converted_ == nullptr) converted_ = math_.pool->take();
  return floats(converted_);
}

Bytes SliceEncoder::own_room() {
  if (encoded_ == nullptr) encoded_ = math_.pool->take();
  return {encoded_.get(), kScratchBytes};
}

// The slice as aligned floats: in place where it already is that.
const float* SliceEncoder::as_floats(const std::byte* input, std::size_t elements) {
  if (math_.residuals != nullptr) return reinterpret_cast<const float*>(input);
  if (holds_floats(math_.type, input)) return reinterpret_cast<const float*>(input);
  float* floats = converted();
  if (math_.is_16_bit()) {
    kernels::widen_exactly(math_.type, floats, input, elements);  // if a NaN loses its payload, then in the codec
  } else {
    copy_bytes(floats, input, elements * sizeof(float));
  }
  return floats;
}

RandomStream SliceEncoder::random_of(std::uint64_t key) const {
  return {.key = key,
          .first_element = first_element_,
          .rank = static_cast<std::uint32_t>(math_.rank.value()),
          .world = static_cast<std::uint32_t>(math_.world)};
}

std::size_t SliceEncoder::encode_floats(std::uint64_t key, std::span<const float> values, Bytes payload) const {
  const std::size_t bytes = math_.codec->encode(values, payload, random_of(key));
  QCCL_CHECK(bytes <= payload.size());
  return bytes;
}

std::size_t SliceEncoder::encode(const std::byte* input, std::size_t elements, Bytes payload) {
  if (math_.codec == nullptr) {
    const std::size_t bytes = elements * math_.element_size();
    copy_bytes(payload.data(), input, bytes);
    return bytes;
  }
  if (math_.residuals != nullptr) {
    const ConstBytes ready = encode_once(input, elements);
    copy_bytes(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  return encode_floats(math_.keys.input, {as_floats(input, elements), elements}, payload);
}

ConstBytes SliceEncoder::encode_once(const std::byte* input, std::size_t elements) {
  if (math_.codec == nullptr) return {input, elements * math_.element_size()};
  if (is_current_) return encoded();
  is_current_ = true;
  if (math_.residuals != nullptr) {
    return encode_with_residual(as_floats(input, elements), elements, {.key = math_.keys.input});
  }
  encoded_bytes_ = encode(input, elements, own_room());
  return encoded();
}

// With error feedback the slice is floats already. A 16-bit type rounds what is sent.
ConstBytes SliceEncoder::raw_input(const std::byte* input, std::size_t elements) {
  const std::size_t bytes = elements * math_.element_size();
  if (math_.residuals == nullptr) return {input, bytes};
  const float* const values = as_floats(input, elements);
  if (math_.type == DataType::float32) {
    math_.keep_residual(first_element_, values, values, elements);
    return {input, bytes};
  }
  float* narrowed = converted();
  float* sent = narrowed + elements;
  kernels::narrow(math_.type, narrowed, values, elements);
  kernels::widen(math_.type, sent, narrowed, elements);
  math_.keep_residual(first_element_, values, sent, elements);
  return {converted_.get(), bytes};
}

// Sums that an exact codec sends are rounded as without a codec: the results are the same bits, and take fewer bytes.
void SliceEncoder::round_for_exact(float* sum, std::size_t elements) {
  if (math_.codec == nullptr || !math_.codec->is_exact() || !math_.is_16_bit()) return;
  float* narrowed = converted();
  kernels::narrow(math_.type, narrowed, sum, elements);
  kernels::widen(math_.type, sum, narrowed, elements);
}

std::size_t SliceEncoder::encode_sum(float* sum, std::size_t elements, Bytes payload) {
  if (math_.residuals != nullptr) {
    const ConstBytes ready = encode_with_residual(sum, elements, {.key = math_.keys.hop});
    copy_bytes(payload.data(), ready.data(), ready.size());
    return ready.size();
  }
  round_for_exact(sum, elements);
  if (math_.codec != nullptr) return encode_floats(math_.keys.hop, {sum, elements}, payload);
  math_.write_values(sum, payload.data(), elements);
  return elements * math_.element_size();
}

Status SliceEncoder::encode_result(float* sum, std::byte* output, std::size_t elements) {
  if (math_.residuals == nullptr) {
    round_for_exact(sum, elements);
    encoded_bytes_ = encode_floats(math_.keys.owner, {sum, elements}, own_room());
    return output == nullptr ? Status() : decode(encoded(), output, elements, false);
  }
  ResidualEncoding how{.key = math_.keys.owner};
  if (math_.op == ReduceOp::avg) how.factor = static_cast<float>(math_.divisor());
  const bool in_place = output != nullptr && holds_floats(math_.type, output);
  if (in_place) how.decoded = reinterpret_cast<float*>(output);
  if (output != nullptr && !in_place) how.decoded = converted();
  encode_with_residual(sum, elements, how);
  if (output != nullptr && !in_place) math_.write_values(how.decoded, output, elements);
  return {};
}

Status SliceEncoder::decode(ConstBytes payload, std::byte* output, std::size_t elements, bool raw) {
  if (math_.codec == nullptr || raw) {
    QCCL_TRY(math_.check_raw_size(payload, elements));
    copy_bytes(output, payload.data(), payload.size());
    return {};
  }
  if (holds_floats(math_.type, output)) {
    return math_.codec->decode(payload, {reinterpret_cast<float*>(output), elements});
  }
  float* floats = converted();
  QCCL_TRY(math_.codec->decode(payload, {floats, elements}));
  math_.write_values(floats, output, elements);
  return {};
}

void SliceEncoder::release() {
  converted_.reset();
  encoded_.reset();
}

ConstBytes SliceEncoder::encode_with_residual(const float* values, std::size_t elements, const ResidualEncoding& how) {
  const Bytes room = own_room();
  float* const residual = math_.residuals + first_element_;
  const auto written =
      math_.codec->encode_with_residual({values, elements}, room, random_of(how.key), how.factor, residual);
  encoded_bytes_ = written ? *written : encode_floats(how.key, {values, elements}, room);
  QCCL_CHECK(encoded_bytes_ <= room.size());
  if (written && how.decoded == nullptr) return encoded();
  float* const decoded = how.decoded != nullptr ? how.decoded : converted();
  QCCL_CHECK(math_.codec->decode(encoded(), {decoded, elements}).ok());
  if (!written) math_.keep_residual(first_element_, values, decoded, elements, how.factor);
  return encoded();
}

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

Status SliceAccumulator::add_payload(ConstBytes payload, std::byte* output, std::size_t elements, bool raw) {
  if (math_.codec != nullptr && !raw) {
    const std::span<float> sum(accumulator(), elements);
    return ++added_ == 1 ? math_.codec->decode(payload, sum) : math_.codec->decode_add(payload, sum, sum);
  }
  QCCL_TRY(math_.check_raw_size(payload, elements));
  if (math_.widens()) {
    add_widened(payload.data(), elements);
  } else {
    add_raw(payload.data(), output, elements);
  }
  return {};
}

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
  if (math_.op == ReduceOp::avg) kernels::divide(DataType::float32, sum, math_.divisor(), elements);
  return sum;
}

void SliceAccumulator::finish(std::byte* output, std::size_t elements) {
  if (math_.widens()) return math_.write_values(averaged(elements), output, elements);
  if (math_.type == DataType::boolean && added_ == 1) {  // nothing has made them 0 or 1 yet
    kernels::reduce(math_.type, ReduceOp::bit_or, output, pending_, pending_, elements);
  } else {
    copy_bytes(output, pending_, elements * math_.element_size());
  }
  if (math_.op == ReduceOp::avg) kernels::divide(math_.type, output, math_.divisor(), elements);
}

Status SliceAccumulator::finish_encoded(SliceEncoder& encoder, std::byte* output, std::size_t elements) {
  return encoder.encode_result(averaged(elements), output, elements);
}

}  // namespace qccl::engine
