// Payload formats as a lane sees them: an octet of a payload to floats and, of formats without buckets, back. Those
// with buckets (minmax_lanes.h, block_int_lanes.h, sign_lanes.h) add what a bucket's lanes measure, and
// bucket_encoder.h encodes. Every rule is that of the format's *_reference.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::device {

// 16-bit values to floats and back, without branches; the same bits as half.h.

QCCL_HD inline float widened(DataType type, std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  if (type == DataType::float16) {
    const float finite = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // exact, for denormals too
    bits = sign | (magnitude >= 0x7C00u ? 0x7F800000u | magnitude << 13 : std::bit_cast<std::uint32_t>(finite));
    if (magnitude > 0x7C00u) bits = kCanonicalNanBits;
  }
  return std::bit_cast<float>(bits);
}

QCCL_HD inline std::uint16_t narrowed(DataType type, float value) {
  if (type == DataType::bfloat16) return to_bfloat16(value).bits;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  // The last place of 1/2 is that of denormals.
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  std::uint32_t half = magnitude >= 0x38800000u ? normal : denormal;
  if (magnitude >= 0x47800000u) half = 0x7C00u;
  return static_cast<std::uint16_t>(magnitude > 0x7F800000u ? 0x7E00u : sign | half);
}

QCCL_HD inline Octet<float> widened(DataType type, const Octet<std::uint16_t>& halves) {
  Octet<float> values{};
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) values.of[i] = widened(type, halves.of[i]);
  return values;
}

QCCL_HD inline Octet<std::uint16_t> narrowed(DataType type, const Octet<float>& values) {
  Octet<std::uint16_t> halves{};
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) halves.of[i] = narrowed(type, values.of[i]);
  return halves;
}

// Floats of an array of the job's type: one of 16 bits or float32.
QCCL_HD inline Octet<float> load_floats(DataType type, const void* array, Run run) {
  return type == DataType::float32 ? load_octet<float>(array, run)
                                   : widened(type, load_octet<std::uint16_t>(array, run));
}

QCCL_HD inline void store_floats(DataType type, void* array, Run run, const Octet<float>& values) {
  if (type == DataType::float32) {
    store_octet(array, run, values);
  } else {
    store_octet(array, run, narrowed(type, values));
  }
}

// Values of one type each: those of the job's own, or of a 16-bit type for the wire.
class ValueCodec {
 public:
  QCCL_HD explicit ValueCodec(DataType wire) : wire_(wire) {}

  QCCL_HD Octet<float> decode(const void* payload, Run run) const { return load_floats(wire_, payload, run); }
  QCCL_HD void encode(std::byte* payload, Run run, const Octet<float>& values) const {
    store_floats(wire_, payload, run, values);
  }
  // decode(encode(values))
  QCCL_HD Octet<float> sent(const Octet<float>& values) const {
    if (wire_ == DataType::float32) return values;
    return widened(wire_, narrowed(wire_, values));
  }

 private:
  const DataType wire_;
};

struct RawCodec : ValueCodec {
  QCCL_HD explicit RawCodec(const SliceJob& job) : ValueCodec(job.type) {}
};

struct CastCodec : ValueCodec {
  QCCL_HD explicit CastCodec(const SliceJob& job)
      : ValueCodec(job.format.kind == PayloadKind::float16 ? DataType::float16 : DataType::bfloat16) {}
};

// Decodes a run of a format with buckets: finds each element's quantizer.
template <class Codec>
QCCL_HD Octet<float> decode_buckets(const Codec& codec, const std::byte* payload, const SliceJob& job, Run run) {
  const std::uint32_t bucket_size = job.format.bucket;
  std::uint32_t bucket = run.first / bucket_size;
  std::uint32_t end = (bucket + 1) * bucket_size - run.first;
  auto quantizer = codec.read(payload, bucket);
  const std::uint64_t codes = load_codes(payload + codec.header_bytes(job.count), codec.bits(), run);
  Octet<float> values{};
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    if (i >= run.count) break;
    if (static_cast<std::uint32_t>(i) == end) {
      quantizer = codec.read(payload, ++bucket);
      end += bucket_size;
    }
    values.of[i] = codec.value(quantizer, code_at(codes, codec.bits(), i));
  }
  return values;
}

// A value of any alignment in a payload's headers.
template <class T>
QCCL_HD T load_header(const std::byte* payload, std::uint32_t index) {
  const std::byte* const from = payload + std::size_t{index} * sizeof(T);
  if (is_aligned<sizeof(T)>(from)) return load_aligned<T>(from);
  T header;
  std::memcpy(&header, from, sizeof(T));
  return header;
}

template <class T>
QCCL_HD void store_header(std::byte* payload, std::uint32_t index, T header) {
  std::byte* const to = payload + std::size_t{index} * sizeof(T);
  if (is_aligned<sizeof(T)>(to)) return store_aligned(to, header);
  std::memcpy(to, &header, sizeof(T));
}

}  // namespace qccl::kernels::device
