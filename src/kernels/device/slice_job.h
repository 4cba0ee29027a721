// The work of a device on one slice, as data: parts are added in order, the sum is finished, and its targets are
// written, in one pass over memory. It is a program for slice_body.h, which runs it on a device and on the host.
//
// With v the finished sum of an element and `sent` what the payload makes of it:
//
//   part      = source[i] as the job's type, as float or decoded; a scaled one times `factor`, rounded to the type;
//               one with a residual plus residual[i]
//   v         = the first part, then v op part for the others, in order (reduce.h); if the job finishes,
//               divided by `divisor`, and booleans become 0 or 1
//   payload   = encode(v); without a codec v in the job's type
//   sent      = decode(payload)
//   sum, output = v, or with `outputs_sent` sent; the sum in float, the output in the job's type
//   residual  = (v - sent) * residual_factor, unchanged where that is not finite
//
// Jobs of widens() compute in float32 and round once, the others in their own type: as SliceAccumulator
// (engine/compute/slice_encoder.h). Sources and targets may be the same memory, element for element; otherwise they do
// not overlap, and nor do payloads of grid, whose elements have no fixed place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "kernels/block_int/block_int.h"
#include "kernels/device/payload_format.h"
#include "kernels/grid/grid.h"
#include "kernels/lanes/random.h"
#include "kernels/minmax/minmax.h"
#include "kernels/sign/sign.h"
#include "qccl/types.h"

namespace qccl::kernels::device {

enum class SourceKind : std::uint8_t { elements, floats, payload };

struct Source {
  const void* data = nullptr;
  SourceKind kind = SourceKind::elements;
  bool is_scaled = false;
  bool adds_residual = false;
};

inline constexpr int kMostSources = 8;
inline constexpr int kMostPayloads = 8;

struct SliceJob {
  std::uint32_t count = 0;  // elements of the slice
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;  // payloads that are encoded are added
  std::uint8_t source_count = 0;
  std::uint8_t payload_count = 0;
  bool finishes = false;
  bool outputs_sent = false;
  bool moves = false;  // the only source, bit by bit; without a codec
  PayloadFormat format{};
  Source sources[kMostSources] = {};
  double factor = 1;   // of scaled sources
  double divisor = 0;  // of a finished sum; 0: none

  void* output = nullptr;  // null: not wanted, as all targets
  float* sum = nullptr;
  std::byte* payloads[kMostPayloads] = {};
  float* residual = nullptr;  // of sources that add it; a target if the job keeps it
  bool keeps_residual = false;
  float residual_factor = 1;
  RandomStream random{};  // of the payload, whose first element is the slice's
};

// Whether the job computes in float32.
constexpr bool widens(const SliceJob& job) {
  const bool is_half = job.type == DataType::float16 || job.type == DataType::bfloat16;
  return (is_half && !job.moves) || is_encoded(job.format) || job.sum != nullptr || job.residual != nullptr;
}

// The same for the host's kernels. Of a grid job.
QCCL_HD constexpr GridFormat grid_format(const PayloadFormat& format) {
  GridFormat result;
  if (format.bucket == 1) {
    result.step = format.step;
  } else {
    result.relative = format.step;
    result.bucket_size = format.bucket;
  }
  return result;
}

// Bytes of a payload of the job's elements; of grid, whose payloads say how long they are, the most.
constexpr std::size_t payload_bytes(const SliceJob& job) {
  const PayloadFormat& format = job.format;
  const auto n = static_cast<std::size_t>(job.count);
  switch (format.kind) {
    case PayloadKind::raw: return n * element_bytes(job.type);
    case PayloadKind::float16:
    case PayloadKind::bfloat16: return 2 * n;
    case PayloadKind::minmax: return minmax_encoded_bytes({format.bits, format.bucket}, n);
    case PayloadKind::block_int: return block_int_encoded_bytes({format.bits, format.bucket}, n);
    case PayloadKind::sign: return sign_encoded_bytes({format.bucket}, n);
    case PayloadKind::grid: return grid_max_bytes(grid_format(format), n);
  }
  return 0;
}

// Those of this one, which was written.
inline std::size_t payload_bytes(const SliceJob& job, const void* payload) {
  const std::size_t most = payload_bytes(job);
  if (job.format.kind != PayloadKind::grid) return most;
  const auto* const bytes = static_cast<const std::byte*>(payload);
  return grid_slice_bytes(grid_format(job.format), bytes, most, job.count).value_or(most);
}

constexpr std::size_t source_bytes(const SliceJob& job, SourceKind kind) {
  const auto n = static_cast<std::size_t>(job.count);
  if (kind == SourceKind::payload) return payload_bytes(job);
  return n * (kind == SourceKind::floats ? sizeof(float) : element_bytes(job.type));
}

// The programs in an image. A job runs on the one of its entry(), those of grid on grid_forms before: see
// each_program() in job_list.h.
enum class Entry : std::uint8_t { own_type, raw, cast, minmax, block_int, sign, grid, grid_forms };
inline constexpr int kEntries = 8;
inline constexpr std::array<const char*, kEntries> kEntryNames = {"qccl_own_type", "qccl_raw",       "qccl_cast",
                                                                  "qccl_minmax",   "qccl_block_int", "qccl_sign",
                                                                  "qccl_grid",     "qccl_grid_forms"};

constexpr Entry entry(const SliceJob& job) {
  switch (job.format.kind) {
    case PayloadKind::raw: return widens(job) ? Entry::raw : Entry::own_type;
    case PayloadKind::float16:
    case PayloadKind::bfloat16: return Entry::cast;
    case PayloadKind::minmax: return Entry::minmax;
    case PayloadKind::block_int: return Entry::block_int;
    case PayloadKind::sign: return Entry::sign;
    case PayloadKind::grid: return Entry::grid;
  }
  return Entry::own_type;
}

// Threads of a block: kGroups groups of kGroupLanes, each of which takes pieces of slices by itself.
inline constexpr int kGroupLanes = 32;
inline constexpr int kGroups = 8;
inline constexpr int kThreads = kGroups * kGroupLanes;

}  // namespace qccl::kernels::device
