#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace qccl::plan {
namespace {

bool reads_input(const Step& step) {
  return step.kind == StepKind::send_input || step.kind == StepKind::local_reduce || step.kind == StepKind::local_copy;
}

std::string range_text(const char* buffer, std::uint64_t begin, std::uint64_t count) {
  return fmt::format(", {} [{}, {})", buffer, begin, begin + count);
}

}  // namespace

const char* to_string(StepKind kind) {
  static constexpr const char* kNames[] = {"send_input",  "local_reduce", "recv_reduce", "send_sum",  "finish",
                                           "send_result", "recv_copy",    "forward",     "local_copy"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const RankSchedule& schedule) {
  std::string text;
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& lane = schedule.lanes[i];
    text += fmt::format("lane {}: chunk {}", i, lane.chunk);
    if (std::ranges::any_of(lane.steps, reads_input)) text += range_text("input", lane.input_begin, lane.count);
    text += lane.scratch ? ", in scratch" : range_text("output", lane.output_begin, lane.count);
    if (lane.after >= 0) text += fmt::format(", after lane {}", lane.after);
    text += lane.slice_by_slice ? " slice by slice:\n" : ":\n";
    for (const Step& step : lane.steps) {
      text += fmt::format("  {} phase {} peers [{}]{}{}\n", to_string(step.kind), step.phase,
                          fmt::join(step.peers, " "), step.raw ? " raw" : "", step.quantized ? " quantized" : "");
    }
  }
  return text;
}

}  // namespace qccl::plan
