#include "device_engine/lanes/device_layout.h"

#include <algorithm>

#include "kernels/device/slice_job.h"

namespace qccl::engine {
namespace {

using plan::Step;
using plan::StepKind;

constexpr std::size_t kLayoutAlignment = 256;

// Together the lanes of a rank hold some 64 slices of each kind.
constexpr std::uint64_t kMostSlices = 64;
constexpr std::uint64_t kLeastDepth = 2;

using plan::makes_payload;

bool adds_own(StepKind kind) { return kind == StepKind::local_reduce || kind == StepKind::local_copy; }

bool adds(StepKind kind) { return kind == StepKind::local_reduce || kind == StepKind::recv_reduce; }

// What follows a finished sum is sent as one payload; the bytes of a scratch lane's raw one are its output.
bool sends_well(const plan::Lane& lane, const Step& step, bool is_compressed) {
  const Step& last = lane.steps.back();
  if (step.kind == StepKind::send_sum) return &step == &last;
  if (step.kind != StepKind::send_result) return true;
  return step.raw == last.raw && (!is_compressed || !step.raw || lane.scratch);
}

bool has_jobs(const plan::Lane& lane, bool is_compressed) {
  StepKind made = StepKind::forward;
  for (const Step& step : lane.steps) {
    if (is_compressed && step.kind == StepKind::local_reduce && step.quantized) return false;
    if (!makes_payload(step.kind)) continue;
    if (made != StepKind::forward && (made != step.kind || made != StepKind::send_result)) return false;
    made = step.kind;
    if (!sends_well(lane, step, is_compressed)) return false;
  }
  return true;
}

// This rank's input leaves the lane encoded, so that the job that encodes it knows its error.
bool encodes_input(const plan::Lane& lane) {
  const auto uses = [](const Step& step) { return step.kind == StepKind::send_input || adds_own(step.kind); };
  if (std::ranges::none_of(lane.steps, uses)) return true;
  const auto is_copy = [](const Step& step) { return step.kind == StepKind::local_copy; };
  const auto is_raw = [](const Step& step) { return makes_payload(step.kind) && step.raw; };
  const auto sends = [](const Step& step) { return makes_payload(step.kind); };
  return std::ranges::none_of(lane.steps, is_copy) && std::ranges::none_of(lane.steps, is_raw) &&
         std::ranges::any_of(lane.steps, sends);
}

}  // namespace

std::optional<DeviceLayout> DeviceLayout::of(const ExecutablePlan& plan, int world) {
  const bool is_compressed = plan.codec() != nullptr;
  if (is_compressed && !plan.codec()->device_format()) return std::nullopt;
  DeviceLayout layout(std::clamp(kMostSlices / static_cast<std::uint64_t>(world), kLeastDepth, kMostDepth));
  for (const plan::Lane& lane : plan.schedule().lanes) {
    if (!has_jobs(lane, is_compressed)) return std::nullopt;
    if (is_compressed && plan.call().error_feedback && !encodes_input(lane)) return std::nullopt;
    layout.add_lane(plan, lane);
  }
  return layout;
}

void DeviceLayout::add_lane(const ExecutablePlan& plan, const plan::Lane& lane) {
  Lane& added = lanes_.emplace_back();
  added.begin = bytes_;
  const auto place = [&](std::size_t bytes) {
    const std::size_t at = added.slice_bytes;
    added.slice_bytes += (bytes + kLayoutAlignment - 1) / kLayoutAlignment * kLayoutAlignment;
    return at;
  };
  const std::size_t elements = plan.slice_length(lane.count, 0);
  for (const Step& step : lane.steps) {
    const std::size_t bytes = plan.payload_limit(elements, step.raw);
    const bool is_passed_on = step.kind == StepKind::recv_copy && lane.scratch;
    added.received.push_back(plan::receives(step.kind) && !is_passed_on ? place(bytes) : kNone);
    if (makes_payload(step.kind) && added.payload == kNone) added.payload = place(bytes);
  }
  const auto parts = std::ranges::count_if(lane.steps, [](const Step& step) { return adds(step.kind); });
  if (parts > kernels::device::kMostSources) {
    added.sum = place(elements * std::max(sizeof(float), element_bytes(plan.call().type)));
  }
  bytes_ += depth_ * added.slice_bytes;
}

std::size_t device_lane_bytes(const ExecutablePlan& plan, int world) {
  const auto layout = DeviceLayout::of(plan, world);
  return layout ? std::max<std::size_t>(layout->bytes(), 1) : 0;
}

}  // namespace qccl::engine
