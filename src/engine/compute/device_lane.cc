#include "engine/compute/device_lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/copy.h"

namespace qccl::engine {

using kernels::device::kMostSources;
using kernels::device::Source;
using kernels::device::SourceKind;
using plan::Step;
using plan::StepKind;

DeviceLane::DeviceLane(const DeviceCall& call, std::size_t lane)
    : call_(call),
      plan_(call.plan->schedule().lanes[lane]),
      places_(call.layout.lanes()[lane]),
      memory_(call, lane),
      slices_(call.layout.depth()) {}

void DeviceLane::begin() { std::ranges::fill(slices_, Slice{}); }

void DeviceLane::begin_slice(std::uint64_t slice) {
  slice_ = slice;
  sum_ = memory_.job(slice, false);
  sum_follows_ = false;
}

bool DeviceLane::has_room() const {
  const Slice& before = slices_[slice_ % slices_.size()];
  return before.unsent == 0 && call_.staged->jobs().has_ended(before.last);
}

void DeviceLane::add(const Job& job, bool follows) { current().last = call_.staged->jobs().add(job, follows); }

// A sum of more parts than a job has sources goes on in another one.
void DeviceLane::add_part(const Source& part) {
  if (sum_.source_count == kMostSources) {
    Job job = sum_;
    std::byte* const sum = memory_.place(slice_, places_.sum);
    const bool is_float = widens(job);
    if (is_float) job.sum = reinterpret_cast<float*>(sum);
    if (!is_float) job.output = sum;
    add(job, sum_follows_);
    sum_follows_ = true;
    sum_.source_count = 1;
    sum_.sources[0] = {.data = sum, .kind = is_float ? SourceKind::floats : SourceKind::elements};
  }
  sum_.sources[sum_.source_count++] = part;
}

// The bytes of a raw payload are the job's output in memory of the host, if the job has another format.
void DeviceLane::make_payload(Job& job, bool raw, std::uint64_t random_key) {
  std::byte* const payload = memory_.place(slice_, places_.payload);
  if (raw && is_encoded(job.format)) {
    job.output = payload;
    return;
  }
  job.payloads[job.payload_count++] = payload;
  job.random = memory_.random(slice_, random_key);
}

bool DeviceLane::begin_payload(std::size_t index) {
  const Step& step = plan_.steps[index];
  if (step.kind == StepKind::forward) return false;
  if (step.kind == StepKind::send_input) send_input(index);
  if (step.kind == StepKind::send_sum) {
    make_payload(sum_, step.raw, call_.keys.hop);
    add(sum_, sum_follows_);
    current().payload = current().last;
  }
  ++current().unsent;
  return true;
}

// Together with a copy of the input to the output that follows.
void DeviceLane::send_input(std::size_t index) {
  const Step& step = plan_.steps[index];
  Job job = memory_.job(slice_, step.raw);
  job.sources[job.source_count++] = memory_.own_input(slice_);
  make_payload(job, step.raw, call_.keys.input);
  const bool is_kept = index + 1 < plan_.steps.size() && plan_.steps[index + 1].kind == StepKind::local_copy;
  const bool is_encoded_too = is_encoded(job.format);
  if (is_kept && (is_encoded_too || job.sources[0].data != memory_.output(slice_))) {
    job.output = memory_.output(slice_);
    job.outputs_sent = plan_.steps[index + 1].quantized && is_encoded_too;
  }
  job.moves = !is_encoded_too && !job.sources[0].is_scaled;
  add(job, false);
  current().payload = current().last;
}

ConstBytes DeviceLane::find_payload(std::uint64_t slice) const {
  if (!call_.staged->jobs().has_ended(slices_[slice % slices_.size()].payload)) return {};
  const auto made = std::ranges::find_if(
      plan_.steps, [](const Step& step) { return plan::sends(step.kind) && step.kind != StepKind::forward; });
  return {memory_.place(slice, places_.payload), call_.plan->payload_limit(memory_.elements(slice), made->raw)};
}

void DeviceLane::note_sent(std::uint64_t slice) { --slices_[slice % slices_.size()].unsent; }

// The payload may be anything, as to its bytes: jobs index by nothing that they read.
Status DeviceLane::receive(std::size_t index, ConstBytes payload) {
  const Step& step = plan_.steps[index];
  const std::size_t expected = call_.plan->payload_limit(memory_.elements(slice_), step.raw);
  if (payload.size() != expected) {
    return Failure(ErrorKind::corrupt_data, fmt::format("a slice of {} bytes came as {}", expected, payload.size()));
  }
  received_ = payload;
  if (places_.received[index] == DeviceLayout::kNone) return {};
  std::byte* const copy = memory_.place(slice_, places_.received[index]);
  kernels::copy(copy, payload.data(), payload.size());
  const bool is_encoded = call_.plan->codec() != nullptr && !step.raw;
  const Source part{.data = copy, .kind = is_encoded ? SourceKind::payload : SourceKind::elements};
  if (step.kind == StepKind::recv_reduce) {
    add_part(part);
    return {};
  }
  Job job = memory_.job(slice_, step.raw);
  job.sources[job.source_count++] = part;
  job.output = memory_.output(slice_);
  job.moves = !is_encoded;
  add(job, false);
  return {};
}

void DeviceLane::local(std::size_t index) {
  switch (plan_.steps[index].kind) {
    case StepKind::local_reduce: add_part(memory_.own_input(slice_)); break;
    case StepKind::finish: finish(index); break;
    default: copy_own(index);
  }
}

// Together with the payload of the result, if the lane sends it.
void DeviceLane::finish(std::size_t index) {
  Job& job = sum_;
  job.finishes = true;
  job.divisor = job.op == ReduceOp::avg ? call_.world : 0;
  if (!plan_.scratch) job.output = memory_.output(slice_);
  const bool sends = index + 1 < plan_.steps.size();
  if (sends) {
    const bool raw = plan_.steps[index + 1].raw;
    make_payload(job, raw, call_.keys.owner);
    job.outputs_sent = is_encoded(job.format) && !raw;
  }
  add(job, sum_follows_);
  current().payload = current().last;
}

void DeviceLane::copy_own(std::size_t index) {
  const bool is_sent = index > 0 && plan_.steps[index - 1].kind == StepKind::send_input;
  if (is_sent) return;
  Job job = memory_.job(slice_, !plan_.steps[index].quantized);
  job.sources[job.source_count++] = memory_.own_input(slice_);
  job.output = memory_.output(slice_);
  job.outputs_sent = is_encoded(job.format);
  job.moves = !job.outputs_sent;
  if (job.moves && job.output == job.sources[0].data) return;
  job.random = memory_.random(slice_, call_.keys.input);
  add(job, false);
}

}  // namespace qccl::engine
