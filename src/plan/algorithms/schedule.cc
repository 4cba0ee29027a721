// The functions of plan.h that build schedules.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// The caller's own layout: one piece for each rank, in rank order.
std::vector<Range> piece_ranges(const Request& request) {
  std::vector<Range> ranges;
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(request.world); ++rank) {
    const std::uint64_t count = request.counts.empty() ? request.count : request.counts[rank];
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

bool is_empty(const Request& request) {
  if (request.counts.empty()) return request.count == 0;
  if (request.collective == Collective::all_to_all) return false;  // other ranks may have elements
  return std::accumulate(request.counts.begin(), request.counts.end(), std::uint64_t{0}) == 0;
}

// There is nothing to compute or move, but the ranks' calls must meet.
void build_meeting(Builder& builder) {
  for (const int peer : builder.others()) {
    builder.add(Lane{.steps = {{StepKind::send_input, 0, {peer}}}});
    builder.add(Lane{.steps = {{StepKind::recv_copy, 0, {peer}}}});
  }
}

}  // namespace

int lanes_of_window(std::uint64_t window_bytes, int world, std::uint64_t slice_bytes) {
  constexpr std::uint64_t kMost = 512;
  const std::uint64_t share = window_bytes == 0 ? 0 : stream_window(window_bytes, world);
  return static_cast<int>(std::clamp<std::uint64_t>(share / std::max<std::uint64_t>(1, slice_bytes), 1, kMost));
}

std::uint64_t stream_window(std::uint64_t window_bytes, int world) {
  constexpr std::uint64_t kLeast = std::uint64_t{24} << 10;
  return std::max(kLeast, window_bytes / static_cast<std::uint64_t>(std::max(1, world - 1)));
}

std::size_t most_slice_bytes(std::uint64_t window_bytes, int world) {
  constexpr std::uint64_t kSlices = 6;
  constexpr std::uint64_t kLeast = std::uint64_t{8} << 10;  // of which a header is less than a hundredth
  if (window_bytes == 0) return kMaxSliceBytes;
  return std::clamp<std::uint64_t>(stream_window(window_bytes, world) / kSlices, kLeast, kMaxSliceBytes);
}

std::vector<Range> chunks(const Request& request) {
  if (has_pieces(request.collective)) return piece_ranges(request);
  const int count = chunk_count(request);
  if (count == 1) return {{0, request.count}};
  if (!request.shares.empty() && uses_shares(request.collective, request.algorithm)) {
    return chunk_ranges(request.count, request.shares, request.bucket_size);
  }
  return chunk_ranges(request.count, count, request.bucket_size);
}

RankSchedule schedule_of(const Request& request, int rank) {
  Builder builder(request, rank);
  if (is_empty(request)) {
    build_meeting(builder);
  } else {
    const Algorithm algorithm = built_for(request.algorithm, request.compressed);
    const CollectiveBuilder* const found = builder_of(request.collective, algorithm);
    QCCL_CHECK(found != nullptr);
    found->build(builder);
  }
  return builder.take();
}

}  // namespace qccl::plan
