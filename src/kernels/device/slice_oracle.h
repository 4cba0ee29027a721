// For tests: what a job must write, computed by the host's kernels one step after the other, as the engine does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/device/slice_body.h"
#include "kernels/device/slice_job.h"
#include "kernels/every_simd.h"
#include "kernels/reduce/reduce.h"

namespace qccl::kernels::device {

using ByteVector = std::vector<std::byte>;
using FloatVector = std::vector<float>;

// The memory that a job writes.
struct Written {
  ByteVector output;
  FloatVector sum;
  ByteVector payload;
  FloatVector residual;

  bool operator==(const Written& other) const {
    return output == other.output && payload == other.payload && bits_of(sum) == bits_of(other.sum) &&
           bits_of(residual) == bits_of(other.residual);
  }
};

class Oracle {
 public:
  explicit Oracle(const SliceJob& job) : job_(job), n_(job.count) {}

  Written run() const { return widens(job_) ? run_widened() : run_own(); }

 private:
  bool is_half() const { return job_.type == DataType::float16 || job_.type == DataType::bfloat16; }
  std::size_t raw_bytes() const { return n_ * element_bytes(job_.type); }
  DataType half_on_wire() const {
    return job_.format.kind == PayloadKind::float16 ? DataType::float16 : DataType::bfloat16;
  }

  // ---- in the job's own type

  ByteVector own_part(const Source& source) const {
    ByteVector part(raw_bytes());
    if (n_ > 0) std::memcpy(part.data(), source.data, part.size());
    if (source.is_scaled) scale(job_.type, part.data(), part.data(), job_.factor, n_);
    return part;
  }

  Written run_own() const {
    ByteVector sum = own_part(job_.sources[0]);
    for (int i = 1; i < job_.source_count; ++i) {
      const ByteVector part = own_part(job_.sources[i]);
      reduce(job_.type, job_.op, sum.data(), sum.data(), part.data(), n_);
    }
    if (job_.finishes && job_.type == DataType::boolean) {
      reduce(job_.type, ReduceOp::bit_or, sum.data(), sum.data(), sum.data(), n_);
    }
    if (job_.finishes && job_.divisor != 0) divide(job_.type, sum.data(), job_.divisor, n_);
    Written written;
    if (job_.output != nullptr) written.output = sum;
    if (job_.payload_count > 0) written.payload = sum;
    return written;
  }

  // ---- in float32

  FloatVector floats_of(const void* elements) const {
    FloatVector values(n_);
    if (n_ == 0) return values;
    if (is_half()) {
      widen(job_.type, values.data(), elements, n_);
    } else {
      std::memcpy(values.data(), elements, n_ * sizeof(float));
    }
    return values;
  }

  ByteVector bytes_of(const FloatVector& values) const {
    ByteVector bytes(raw_bytes());
    if (n_ == 0) return bytes;
    if (is_half()) {
      narrow(job_.type, bytes.data(), values.data(), n_);
    } else {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return bytes;
  }

  FloatVector widened_part(const Source& source) const {
    FloatVector values(n_);
    if (source.kind == SourceKind::payload) {
      values = decoded(static_cast<const std::byte*>(source.data));
    } else if (source.kind == SourceKind::floats) {
      if (n_ > 0) std::memcpy(values.data(), source.data, n_ * sizeof(float));
    } else {
      values = floats_of(own_part(source).data());
    }
    if (source.adds_residual) {
      reduce(DataType::float32, ReduceOp::sum, values.data(), values.data(), job_.residual, n_);
    }
    return values;
  }

  ByteVector encoded(const FloatVector& values) const {
    const PayloadFormat& format = job_.format;
    const RandomStream* const random = format.stochastic ? &job_.random : nullptr;
    ByteVector payload(payload_bytes(job_));
    switch (format.kind) {
      case PayloadKind::raw: return bytes_of(values);
      case PayloadKind::float16:
      case PayloadKind::bfloat16: narrow(half_on_wire(), payload.data(), values.data(), n_); break;
      case PayloadKind::minmax:
        minmax_encode({format.bits, format.bucket}, values.data(), n_, payload.data(), random);
        break;
      case PayloadKind::block_int:
        block_int_encode({format.bits, format.bucket}, values.data(), n_, payload.data(), random);
        break;
      case PayloadKind::sign: sign_encode({format.bucket, format.norm_scale}, values.data(), n_, payload.data()); break;
      case PayloadKind::grid:
        payload.resize(grid_encode(grid_format(format), values.data(), n_, payload.data(), random));
        break;
    }
    return payload;
  }

  FloatVector decoded(const std::byte* payload) const {
    const PayloadFormat& format = job_.format;
    FloatVector values(n_);
    switch (format.kind) {
      case PayloadKind::raw: return floats_of(payload);
      case PayloadKind::float16:
      case PayloadKind::bfloat16: widen(half_on_wire(), values.data(), payload, n_); break;
      case PayloadKind::minmax: minmax_decode({format.bits, format.bucket}, payload, nullptr, values.data(), n_); break;
      case PayloadKind::block_int:
        block_int_decode({format.bits, format.bucket}, payload, nullptr, values.data(), n_);
        break;
      case PayloadKind::sign: sign_decode({format.bucket}, payload, nullptr, values.data(), n_); break;
      case PayloadKind::grid: {
        const std::size_t bytes = payload_bytes(job_, payload);
        EXPECT_TRUE(grid_decode(grid_format(format), payload, bytes, nullptr, values.data(), n_));
        break;
      }
    }
    return values;
  }

  Written run_widened() const {
    FloatVector values = widened_part(job_.sources[0]);
    for (int i = 1; i < job_.source_count; ++i) {
      const FloatVector part = widened_part(job_.sources[i]);
      reduce(DataType::float32, job_.op, values.data(), values.data(), part.data(), n_);
    }
    if (job_.finishes && job_.divisor != 0) divide(DataType::float32, values.data(), job_.divisor, n_);
    const ByteVector payload = encoded(values);
    const FloatVector sent = decoded(payload.data());
    Written written;
    if (job_.payload_count > 0) written.payload = payload;
    if (job_.output != nullptr) written.output = bytes_of(job_.outputs_sent ? sent : values);
    if (job_.sum != nullptr) written.sum = job_.outputs_sent ? sent : values;
    if (job_.keeps_residual) {
      written.residual.assign(job_.residual, job_.residual + n_);
      keep_residual(values.data(), sent.data(), job_.residual_factor, written.residual.data(), n_);
    }
    return written;
  }

  const SliceJob& job_;
  const std::size_t n_;
};

}  // namespace qccl::kernels::device
