// What a job makes of an octet apart from encoding it: the sum of its parts, and the targets that hold values.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/device/codecs.h"
#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

// ---- jobs that compute in float32

// A part times the job's factor, rounded to the job's type.
QCCL_HD_COLD inline Octet<float> scaled(DataType type, Octet<float> part, float factor) {
  for (int i = 0; i < kOctet; ++i) part.of[i] = reference::canonical(part.of[i] * factor);
  return type == DataType::float32 ? part : widened(type, narrowed(type, part));
}

// Whether an octet's payload follows from its values alone.
template <class Codec>
inline constexpr bool kHasBuckets = !std::is_base_of_v<ValueCodec, Codec>;

template <class Codec>
QCCL_HD Octet<float> load_part(const Codec& codec, const SliceJob& job, const Source& source, Run run) {
  Octet<float> part;
  if (source.kind == SourceKind::payload) {
    if constexpr (kHasBuckets<Codec>) {
      part = decode_buckets(codec, static_cast<const std::byte*>(source.data), job, run);
    } else {
      part = codec.decode(source.data, run);
    }
  } else {
    part = load_floats(source.kind == SourceKind::floats ? DataType::float32 : job.type, source.data, run);
  }
  if (source.is_scaled) part = scaled(job.type, part, static_cast<float>(job.factor));
  if (source.adds_residual) {
    const auto residual = load_octet<float>(job.residual, run);
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) part.of[i] = reference::canonical(part.of[i] + residual.of[i]);
  }
  return part;
}

template <class T>
QCCL_HD_COLD Octet<T> combine_by(ReduceOp op, Octet<T> sum, Octet<T> part) {
  for (int i = 0; i < kOctet; ++i) sum.of[i] = reference::combine(op, sum.of[i], part.of[i]);
  return sum;
}

template <class T>
QCCL_HD void combine_octets(ReduceOp op, Octet<T>& sum, const Octet<T>& part) {
  if (!reference::adds(op)) {
    sum = combine_by(op, sum, part);
    return;
  }
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) sum.of[i] = reference::combine(ReduceOp::sum, sum.of[i], part.of[i]);
}

template <class T>
QCCL_HD void finish_floats(const SliceJob& job, Octet<T>& sum) {
  if (!job.finishes || job.divisor == 0) return;
  const auto divisor = static_cast<T>(job.divisor);
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) sum.of[i] = reference::canonical(sum.of[i] / divisor);
}

// The finished sum.
template <class Codec>
QCCL_HD Octet<float> sum_of_parts(const Codec& codec, const SliceJob& job, Run run) {
  Octet<float> sum{};
  for (int i = 0; i < job.source_count; ++i) {
    const Octet<float> part = load_part(codec, job, job.sources[i], run);
    if (i == 0) {
      sum = part;
    } else {
      combine_octets(job.op, sum, part);
    }
  }
  finish_floats(job, sum);
  return sum;
}

// All targets but the payload.
QCCL_HD inline void write_targets(const SliceJob& job, Run run, const Octet<float>& values, const Octet<float>& sent) {
  Octet<float> result{};
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) result.of[i] = job.outputs_sent ? sent.of[i] : values.of[i];
  if (job.keeps_residual) {
    auto residual = load_octet<float>(job.residual, run);
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const float left = (values.of[i] - sent.of[i]) * job.residual_factor;
      if (std::isfinite(left)) residual.of[i] = left;
    }
    store_octet(job.residual, run, residual);
  }
  if (job.sum != nullptr) store_octet(job.sum, run, result);
  if (job.output != nullptr) store_floats(job.type, job.output, run, result);
}

}  // namespace qccl::kernels::device
