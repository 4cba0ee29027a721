// The lanes of an all_to_all. Frames carry the piece's length in the fields that hold phase and chunk in other
// collectives, so that ranks notice if their counts differ; empty pieces are sent for the same reason.
#include "plan/algorithms/builder.h"

namespace qccl::plan {
namespace {

// The pieces that this rank sends to each rank, or receives from each.
std::vector<Range> pieces(const Builder& b, bool received) {
  if (b.request().counts.empty()) return b.ranges();
  const auto world = static_cast<std::size_t>(b.world());
  std::vector<Range> ranges;
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::uint64_t count = b.request().counts[rank + (received ? world : 0)];
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

Lane lane_of(Range input, Range output, Step step) {
  const std::uint64_t count = step.kind == StepKind::recv_copy ? output.count : input.count;
  step.phase = static_cast<std::uint16_t>(count >> 32 & kMaxPhase);
  return {.chunk = static_cast<std::uint32_t>(count),
          .input_begin = input.begin,
          .output_begin = output.begin,
          .count = count,
          .steps = {std::move(step)}};
}

}  // namespace

void build_all_to_all(Builder& builder, bool one_at_a_time) {
  const auto sent = pieces(builder, false);
  const auto received = pieces(builder, true);
  const auto own = static_cast<std::size_t>(builder.rank());
  builder.add(lane_of(sent[own], received[own], {StepKind::local_copy, 0, {}}));
  for (const int peer : builder.others()) {
    const auto at = static_cast<std::size_t>(peer);
    builder.add(lane_of({}, received[at], {StepKind::recv_copy, 0, {peer}}));
  }
  int last = -1;
  for (const int peer : builder.others()) {
    Lane lane = lane_of(sent[static_cast<std::size_t>(peer)], {}, {StepKind::send_input, 0, {peer}});
    lane.scratch = true;
    if (one_at_a_time) lane.after = last;
    builder.add(std::move(lane));
    last = builder.last_lane();
  }
}

}  // namespace qccl::plan
