#include "device_engine/lanes/device_slices.h"

namespace qccl::engine {

using kernels::device::SliceJob;
using kernels::device::Source;

DeviceSlices::DeviceSlices(DeviceCall& call, std::size_t lane)
    : call_(call), lane_(call.plan->schedule().lanes[lane]), places_(call.layout.lanes()[lane]) {}

std::size_t DeviceSlices::elements(std::uint64_t slice) const { return call_.plan->slice_length(lane_.count, slice); }

std::byte* DeviceSlices::place(std::uint64_t slice, std::size_t at) const {
  return call_.staged->memory().lane_memory() + places_.begin + (slice % call_.layout.depth()) * places_.slice_bytes +
         at;
}

// An element of a sum has the same index as in each rank's tensor.
Source DeviceSlices::take_input(std::uint64_t slice, SliceJob& job) const {
  const std::uint64_t first = lane_.input_begin + slice * call_.plan->slice_elements();
  if (call_.feedback != nullptr) {
    if (call_.kept.ok()) call_.kept = call_.feedback->keep(first, elements(slice));
    call_.arguments->feedback->note_saved(elements(slice));
    job.residual = call_.feedback->residual() + first;
  }
  return {.data = call_.arguments->input + first * element_bytes(call_.plan->call().type),
          .is_scaled = call_.plan->call().op == ReduceOp::premul_sum,
          .adds_residual = call_.feedback != nullptr};
}

void* DeviceSlices::output(std::uint64_t slice) const {
  const std::uint64_t first = lane_.output_begin + slice * call_.plan->slice_elements();
  return call_.arguments->output + first * element_bytes(call_.plan->call().type);
}

SliceJob DeviceSlices::job(std::uint64_t slice, bool raw) const {
  SliceJob job;
  job.count = static_cast<std::uint32_t>(elements(slice));
  job.type = call_.plan->call().type;
  job.op = call_.plan->call().op;
  job.factor = call_.arguments->premul_factor;
  if (!raw) job.format = call_.format;
  return job;
}

RandomStream DeviceSlices::random(std::uint64_t slice, std::uint64_t key) const {
  return {.key = key,
          .first_element = lane_.input_begin + slice * call_.plan->slice_elements(),
          .rank = static_cast<std::uint32_t>(call_.rank.value()),
          .world = static_cast<std::uint32_t>(call_.world)};
}

}  // namespace qccl::engine
