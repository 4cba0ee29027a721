// The computation of a plan's steps, and its time.
#include <algorithm>
#include <cstddef>

#include "plan/cost/cost.h"

namespace qccl::plan {
namespace {

bool accumulates(const Step& step) { return step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce; }

// Number of parts of the sum that the lane has before the step.
std::ptrdiff_t parts_before(const Lane& lane, std::size_t step) {
  return std::count_if(lane.steps.begin(), lane.steps.begin() + static_cast<std::ptrdiff_t>(step), accumulates);
}

// Uncompressed, the first part is used where it lies, without a copy.
StepWork add_part(const Lane& lane, std::size_t step, bool compressed) {
  if (parts_before(lane, step) > 0) return {.adds = 1};
  return {.copies = compressed ? 1 : 0};
}

// Encodes the sum once and decodes it; or copies it to the output, if the last addition did not write there.
StepWork finish(const Lane& lane, std::size_t step, bool compressed) {
  const Step& last = lane.steps.back();
  if (compressed && last.kind == StepKind::send_result && !last.raw) return {.encodes = 1, .decodes = 1};
  return {.copies = compressed || parts_before(lane, step) == 1 ? 1 : 0};
}

}  // namespace

StepWork work_of(const Lane& lane, std::size_t index, bool compressed) {
  const Step& step = lane.steps[index];
  const bool is_coded = compressed && !step.raw;
  const auto decode_or_copy = [](bool decodes) { return decodes ? StepWork{.decodes = 1} : StepWork{.copies = 1}; };
  switch (step.kind) {
    case StepKind::send_input:
    case StepKind::send_sum: return {.encodes = is_coded ? 1 : 0};
    case StepKind::local_reduce:
      return compressed && step.quantized ? StepWork{.decodes = 1} : add_part(lane, index, compressed);
    case StepKind::recv_reduce: return is_coded ? StepWork{.decodes = 1} : add_part(lane, index, compressed);
    case StepKind::finish: return finish(lane, index, compressed);
    case StepKind::recv_copy: return lane.scratch ? StepWork{} : decode_or_copy(is_coded);
    case StepKind::local_copy: return decode_or_copy(step.quantized && compressed);
    case StepKind::send_result:
    case StepKind::forward: break;
  }
  return {};
}

double seconds_of(const StepWork& work, double bytes, const MachineModel& links) {
  return work.encodes * seconds(bytes, links.encode_rate) + work.decodes * seconds(bytes, links.decode_rate) +
         work.adds * seconds(bytes, links.add_rate) + work.copies * seconds(bytes, links.copy_rate);
}

}  // namespace qccl::plan
