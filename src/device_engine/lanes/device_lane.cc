#include "device_engine/lanes/device_lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "kernels/copy.h"

namespace qccl::engine {

using kernels::device::kMostSources;
using kernels::device::Source;
using kernels::device::SourceKind;
using plan::Step;
using plan::StepKind;

namespace {

// Some peer of this step has no frame, or a later step sends the payload, too.
bool needs_place(const plan::Lane& lane, std::size_t index, std::span<const Bytes> frames) {
  const auto& steps = lane.steps;
  if (frames.size() < steps[index].peers.size()) return true;
  if (std::ranges::any_of(frames, [](Bytes frame) { return frame.data() == nullptr; })) return true;
  return index + 1 < steps.size() && plan::sends(steps[index + 1].kind);
}

}  // namespace

static_assert(DeviceLane::kMostFrames + 1 == kernels::device::kMostPayloads);

DeviceLane::DeviceLane(DeviceCall& call, std::size_t lane)
    : call_(call),
      plan_(call.plan->schedule().lanes[lane]),
      places_(call.layout.lanes()[lane]),
      memory_(call, lane),
      tickets_(call.layout.depth()) {}

void DeviceLane::begin() { tickets_.begin(call_.staged->jobs()); }

void DeviceLane::begin_slice(std::uint64_t slice) {
  tickets_.begin_slice(slice);
  sum_ = memory_.job(slice, false);
  has_payload_ = false;
}

// A sum of more parts than a job has sources goes on in another one.
void DeviceLane::add_part(const Source& part) {
  if (sum_.source_count == kMostSources) {
    Job job = sum_;
    std::byte* const sum = memory_.place(slice(), places_.sum);
    const bool is_float = widens(job);
    if (is_float) job.sum = reinterpret_cast<float*>(sum);
    if (!is_float) job.output = sum;
    tickets_.add(job);
    sum_.source_count = 1;
    sum_.sources[0] = {.data = sum, .kind = is_float ? SourceKind::floats : SourceKind::elements};
  }
  sum_.sources[sum_.source_count++] = part;
}

// A raw payload beside a codec is the job's output, which has no frames: see add_payload().
bool DeviceLane::takes_frames(std::size_t index) const {
  const Step& step = plan_.steps[index];
  if (step.kind == StepKind::forward || has_payload_ || !call_.staged->home().reaches_frames()) return false;
  return step.kind == StepKind::send_input || !step.raw || !is_encoded(call_.format);
}

bool DeviceLane::begin_payload(std::size_t index, std::span<const Bytes> frames) {
  const StepKind kind = plan_.steps[index].kind;
  if (kind == StepKind::forward) return false;
  if (!has_payload_) {
    if (kind == StepKind::send_input) send_own(index, frames);
    if (kind != StepKind::send_input) send_sum(index, frames);
    tickets_.note_payload();
    has_payload_ = true;
  }
  tickets_.note_unsent();
  return true;
}

// The bytes of a raw payload are the job's output in memory of the host, if the job has another format.
void DeviceLane::add_payload(Job& job, std::size_t index, std::span<const Bytes> frames, std::uint64_t random_key) {
  std::byte* const place = memory_.place(slice(), places_.payload);
  if (plan_.steps[index].raw && is_encoded(job.format)) {
    job.output = place;
    return;
  }
  if (needs_place(plan_, index, frames)) job.payloads[job.payload_count++] = place;
  for (const Bytes frame : frames) {
    if (frame.data() == nullptr) continue;
    std::byte* const reached = call_.staged->home().reach(frame);
    QCCL_CHECK(reached != nullptr);  // all frames are registered, or takes_frames() is false
    job.payloads[job.payload_count++] = reached;
  }
  job.random = memory_.random(slice(), random_key);
}

// Together with a copy of the input to the output that follows.
void DeviceLane::send_own(std::size_t index, std::span<const Bytes> frames) {
  Job job = memory_.job(slice(), plan_.steps[index].raw);
  job.sources[job.source_count++] = memory_.take_input(slice(), job);
  job.keeps_residual = job.residual != nullptr;
  add_payload(job, index, frames, call_.keys.input);
  const bool is_kept = index + 1 < plan_.steps.size() && plan_.steps[index + 1].kind == StepKind::local_copy;
  const bool is_encoded_too = is_encoded(job.format);
  if (is_kept && (is_encoded_too || job.sources[0].data != memory_.output(slice()))) {
    job.output = memory_.output(slice());
    job.outputs_sent = plan_.steps[index + 1].quantized && is_encoded_too;
  }
  job.moves = !is_encoded_too && !job.sources[0].is_scaled;
  tickets_.add(job);
}

// The sum so far, or the finished one together with the output that it leaves.
void DeviceLane::send_sum(std::size_t index, std::span<const Bytes> frames) {
  const Step& step = plan_.steps[index];
  const bool is_result = step.kind == StepKind::send_result;
  add_payload(sum_, index, frames, is_result ? call_.keys.owner : call_.keys.hop);
  sum_.outputs_sent = is_result && is_encoded(sum_.format) && !step.raw;
  sum_.keeps_residual = sum_.residual != nullptr;
  if (is_result && sum_.op == ReduceOp::avg) sum_.residual_factor = static_cast<float>(call_.divisor);
  tickets_.add(sum_);
}

ConstBytes DeviceLane::find_payload(std::uint64_t slice) const {
  if (!tickets_.has_payload(slice)) return {};
  const auto made = std::ranges::find_if(plan_.steps, plan::makes_payload, &Step::kind);
  return {memory_.place(slice, places_.payload), call_.plan->payload_limit(memory_.elements(slice), made->raw)};
}

std::byte* DeviceLane::find_place(std::size_t index, std::uint64_t slice) const {
  if (places_.received[index] == DeviceLayout::kNone || !tickets_.has_place(slice)) return nullptr;
  return memory_.place(slice, places_.received[index]);
}

const std::byte* Arrivals::bring(const StagingDevice& device, ConstBytes payload, std::byte* place) {
  last_ = payload;
  stays_ = false;
  if (payload.data() == place) return place;
  const std::byte* const reached = device.reach(payload);
  stays_ = reached != nullptr;
  if (stays_) return reached;
  kernels::copy(place, payload.data(), payload.size());
  return place;
}

// The payload may be anything, as to its bytes: jobs index by nothing that they read but what this checks.
Status DeviceLane::receive(std::size_t index, ConstBytes payload) {
  const Step& step = plan_.steps[index];
  const std::size_t elements = memory_.elements(slice());
  if (call_.plan->find_payload_bytes(payload, elements, step.raw) != payload.size()) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("{} bytes are not the payload of a slice of {} elements", payload.size(), elements));
  }
  const std::size_t place = places_.received[index];
  if (place == DeviceLayout::kNone) {
    arrivals_.pass_on(payload);
    return {};
  }
  const bool is_encoded = call_.plan->codec() != nullptr && !step.raw;
  const Source part{.data = arrivals_.bring(call_.staged->home(), payload, memory_.place(slice(), place)),
                    .kind = is_encoded ? SourceKind::payload : SourceKind::elements};
  if (step.kind == StepKind::recv_reduce) {
    add_part(part);
    return {};
  }
  Job job = memory_.job(slice(), step.raw);
  job.sources[job.source_count++] = part;
  job.output = memory_.output(slice());
  job.moves = !is_encoded;
  tickets_.add(job);
  return {};
}

void DeviceLane::local(std::size_t index) {
  switch (plan_.steps[index].kind) {
    case StepKind::local_reduce: add_part(memory_.take_input(slice(), sum_)); break;
    case StepKind::finish: finish(index); break;
    default: copy_own(index);
  }
}

// A result that the lane sends ends together with its payload: see send_sum().
void DeviceLane::finish(std::size_t index) {
  sum_.finishes = true;
  sum_.divisor = sum_.op == ReduceOp::avg ? call_.divisor : 0;
  if (!plan_.scratch) sum_.output = memory_.output(slice());
  if (index + 1 == plan_.steps.size()) tickets_.add(sum_);
}

void DeviceLane::copy_own(std::size_t index) {
  const bool is_sent = index > 0 && plan_.steps[index - 1].kind == StepKind::send_input;
  if (is_sent) return;
  Job job = memory_.job(slice(), !plan_.steps[index].quantized);
  job.sources[job.source_count++] = memory_.take_input(slice(), job);
  job.output = memory_.output(slice());
  job.outputs_sent = is_encoded(job.format);
  job.moves = !job.outputs_sent;
  if (job.moves && job.output == job.sources[0].data) return;
  job.random = memory_.random(slice(), call_.keys.input);
  tickets_.add(job);
}

}  // namespace qccl::engine
