// What a kernel is launched with: a list of jobs, and how its groups divide their slices.
//
// Groups take pieces of slices. A piece of a format with buckets is a number of whole buckets whose codes fill whole
// bytes, so that no two groups write one byte. Teams of a group's lanes take a bucket each. If the lanes of a team have
// registers for their bucket, it is `held`: read once, measured and quantized. Others are `loose`. Pieces of grid are
// longer, since a group adds up the bytes of all blocks before its piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

inline constexpr std::uint32_t kPieceElements =
    kGroupLanes * kHeld * kOctet;                  // of formats without buckets, and at most
inline constexpr std::uint32_t kMostBuckets = 32;  // of a piece
inline constexpr std::uint32_t kGridPieceElements = 8 * kPieceElements;

struct Layout {
  std::uint32_t piece_elements = kPieceElements;
  int team_log2 = 5;     // of the lanes of a team
  int columns_log2 = 5;  // of its lanes whose octets lie side by side; the next lanes have the rows that follow
  bool is_held = false;
};

QCCL_HD constexpr bool has_buckets(const PayloadFormat& format) {
  return format.kind >= PayloadKind::minmax && format.kind != PayloadKind::grid;
}

// Whether anything of a job with buckets depends on its payload.
QCCL_HD constexpr bool is_quantized(const SliceJob& job) {
  return job.payload_count > 0 || job.outputs_sent || job.keeps_residual;
}

// Buckets of a piece of loose ones: as many as fit, in whole bytes.
QCCL_HD constexpr std::uint32_t loose_buckets(std::uint32_t bucket) {
  const std::uint32_t power_of_two = bucket & (0u - bucket);  // the largest that divides the bucket
  const std::uint32_t step = kOctet / lesser<std::uint32_t>(power_of_two, kOctet);
  const std::uint32_t fit = lesser(kMostBuckets, kPieceElements / bucket);
  return greater(fit / step * step, step);
}

// The log2 of how many lanes share a bucket: as few as hold it with `of_lane` elements each, at most 2^most_log2.
QCCL_HD constexpr int team_log2(std::uint32_t bucket, std::uint32_t of_lane, int most_log2) {
  int log2 = 0;
  while (log2 < most_log2 && of_lane << log2 < bucket) ++log2;
  return log2;
}

// Whole buckets, if the job measures or quantizes them.
QCCL_HD constexpr std::uint32_t grid_piece_elements(const SliceJob& job) {
  const std::uint32_t bucket = job.format.bucket;
  if (!is_quantized(job)) return kGridPieceElements;
  return greater(kGridPieceElements / bucket, 1u) * bucket;
}

// For a bucket of signs, sign_reference.h specifies which lanes add its columns and in which order they take its rows.
QCCL_HD constexpr Layout layout_of(const SliceJob& job) {
  constexpr std::uint32_t kOfLane = kHeld * kOctet;
  const PayloadFormat& format = job.format;
  Layout layout;
  if (format.kind == PayloadKind::grid) layout.piece_elements = grid_piece_elements(job);
  if (!has_buckets(format)) return layout;
  const bool has_order = format.kind == PayloadKind::sign && is_quantized(job);
  layout.team_log2 = team_log2(format.bucket, kOfLane, 5);
  layout.columns_log2 = has_order ? team_log2(format.bucket, kOctet, format.norm_scale ? 1 : 3) : layout.team_log2;
  layout.team_log2 = greater(layout.team_log2, layout.columns_log2);
  layout.is_held = format.bucket % kOctet == 0 && format.bucket <= kOfLane << layout.team_log2;
  if (layout.is_held) {
    layout.piece_elements = format.bucket << (5 - layout.team_log2);
  } else {
    layout.team_log2 = layout.columns_log2;
    if (is_quantized(job)) layout.piece_elements = loose_buckets(format.bucket) * format.bucket;
  }
  return layout;
}

constexpr std::uint32_t pieces(const SliceJob& job) {
  const std::uint32_t elements = layout_of(job).piece_elements;
  return static_cast<std::uint32_t>((std::uint64_t{job.count} + elements - 1) / elements);
}

// The parameter of a kernel: 4 KiB, the most that every driver takes. A device keeps parameters where its threads read
// them without a trip to the host's memory.
inline constexpr std::uint32_t kMostListed = 14;

struct JobList {
  std::uint32_t count = 0;
  std::uint32_t piece_ends[kMostListed] = {};  // the pieces of a job and of those before it
  SliceJob jobs[kMostListed] = {};
};
static_assert(sizeof(JobList) <= 4096);

// Of at most kMostListed jobs.
inline JobList list_of(const SliceJob* jobs, std::uint32_t count) {
  JobList list;
  std::uint32_t end = 0;
  for (; list.count < count; ++list.count) {
    list.jobs[list.count] = jobs[list.count];
    list.piece_ends[list.count] = end += pieces(jobs[list.count]);
  }
  return list;
}

// Calls use(program) for each program that jobs with this entry() take, one launch behind the other: if grid jobs have
// payloads, the one that writes steps and forms comes first.
template <class Use>
void each_program(Entry entry, std::span<const SliceJob> jobs, Use use) {
  const auto has_payloads = [](const SliceJob& job) { return job.payload_count > 0; };
  if (entry == Entry::grid && std::ranges::any_of(jobs, has_payloads)) use(Entry::grid_forms);
  use(entry);
}

}  // namespace qccl::kernels::device
