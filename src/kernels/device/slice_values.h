// What a job makes of a lane's octets apart from encoding them: the sum of their parts, and the targets that hold
// values.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/device/codecs.h"
#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

template <class T>
QCCL_HD_COLD Octet<T> combine_by(ReduceOp op, Octet<T> sum, Octet<T> part) {
  for (int i = 0; i < kOctet; ++i) sum.of[i] = reference::combine(op, sum.of[i], part.of[i]);
  return sum;
}

// ---- jobs that compute in their own type

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

// ---- jobs that compute in float32

// A part times the job's factor, rounded to the job's type.
template <int kCount>
QCCL_HD_COLD Octets<float, kCount> scaled(DataType type, Octets<float, kCount> part, float factor) {
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    for (float& value : part.of[k].of) value = reference::canonical(value * factor);
  }
  return type == DataType::float32 ? part : widened(type, narrowed(type, part));
}

// Whether an octet's payload follows from its values alone.
template <class Codec>
inline constexpr bool kHasBuckets = !std::is_base_of_v<ValueCodec, Codec>;

// Makes of a part what the job adds of it.
template <int kCount>
QCCL_HD void adjust_part(const SliceJob& job, const Source& source, const Runs& runs, Octets<float, kCount>& part) {
  if (source.is_scaled) part = scaled(job.type, part, static_cast<float>(job.factor));
  if (!source.adds_residual) return;
  const auto residual = load_octets<float, kCount>(job.residual, runs);
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) part.of[k].of[i] += residual.of[k].of[i];
  }
}

template <int kCount, class Codec>
QCCL_HD Octets<float, kCount> load_part(const Codec& codec, const SliceJob& job, const Source& source,
                                        const Place& place) {
  Octets<float, kCount> part;
  DataType type = source.kind == SourceKind::floats ? DataType::float32 : job.type;
  if constexpr (!kHasBuckets<Codec>) {
    if (source.kind == SourceKind::payload) type = codec.wire();
    part = load_floats<kCount>(type, source.data, place.runs);
  } else if (source.kind == SourceKind::payload) {
    part = decode_buckets<kCount>(codec, static_cast<const std::byte*>(source.data), place);
  } else {
    part = load_floats<kCount>(type, source.data, place.runs);
  }
  adjust_part(job, source, place.runs, part);
  return part;
}

template <int kCount>
QCCL_HD_COLD Octets<float, kCount> combine_octets_by(ReduceOp op, Octets<float, kCount> sum,
                                                     Octets<float, kCount> part) {
  for (int k = 0; k < kCount; ++k) sum.of[k] = combine_by(op, sum.of[k], part.of[k]);
  return sum;
}

template <int kCount>
QCCL_HD void add_part(ReduceOp op, Octets<float, kCount>& sum, const Octets<float, kCount>& part) {
  if (!reference::adds(op)) {
    sum = combine_octets_by(op, sum, part);
    return;
  }
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) sum.of[k].of[i] += part.of[k].of[i];
  }
}

// A division by a power of two is a multiplication, which is exact or rounded alike.
template <int kCount>
QCCL_HD void divide_octets(Octets<float, kCount>& sum, float divisor) {
  const float inverse = 1.0f / divisor;
  const bool is_power = (bit_cast<std::uint32_t>(divisor) & 0x807FFFFFu) == 0 && divisor >= 1 && divisor <= 0x1p100f;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      float& value = sum.of[k].of[i];
      value = is_power ? value * inverse : value / divisor;
    }
  }
}

template <int kCount>
QCCL_HD void finish_sum(const SliceJob& job, Octets<float, kCount>& sum) {
  if (job.finishes && job.divisor != 0) divide_octets(sum, static_cast<float>(job.divisor));
}

// The finished sum, but for the bits of NaNs.
template <int kCount, class Codec>
QCCL_HD Octets<float, kCount> sum_of_parts(const Codec& codec, const SliceJob& job, const Place& place) {
  Octets<float, kCount> sum;
  QCCL_ROLL
  for (int i = 0; i < job.source_count; ++i) {
    const Octets<float, kCount> part = load_part<kCount>(codec, job, job.sources[i], place);
    if (i == 0) {
      sum = part;
    } else {
      add_part(job.op, sum, part);
    }
  }
  finish_sum(job, sum);
  return sum;
}

template <int kCount>
QCCL_HD_COLD Octets<float, kCount> canonical_octets(Octets<float, kCount> values) {
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) values.of[k].of[i] = reference::canonical(values.of[k].of[i]);
  }
  return values;
}

// Gives NaNs that were computed the bits of the host's; those that were only moved keep theirs.
template <int kCount>
QCCL_HD void canonize(const SliceJob& job, Octets<float, kCount>& values) {
  if (job.source_count == 1 && !job.sources[0].adds_residual && !(job.finishes && job.divisor != 0)) return;
  bool has_nan = false;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; i += 2) has_nan |= is_unordered(values.of[k].of[i], values.of[k].of[i + 1]);
  }
  if (has_nan) values = canonical_octets(values);
}

template <int kCount>
QCCL_HD void write_residual(const SliceJob& job, const Runs& runs, const Octets<float, kCount>& values,
                            const Octets<float, kCount>& sent) {
  auto residual = load_octets<float, kCount>(job.residual, runs);
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const float left = (values.of[k].of[i] - sent.of[k].of[i]) * job.residual_factor;
      if (std::isfinite(left)) residual.of[k].of[i] = left;
    }
  }
  store_octets(job.residual, runs, residual);
}

// Sum and output.
template <int kCount>
QCCL_HD void write_values(const SliceJob& job, const Runs& runs, const Octets<float, kCount>& values) {
  if (job.sum != nullptr) store_octets(job.sum, runs, values);
  if (job.output != nullptr) store_floats(job.type, job.output, runs, values);
}

}  // namespace qccl::kernels::device
