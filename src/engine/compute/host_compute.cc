#include "engine/compute/host_compute.h"

#include <algorithm>

#include "kernels/copy.h"

namespace qccl::engine {

using plan::Step;
using plan::StepKind;

namespace {

// This rank's input leaves the lane encoded.
bool encodes(const Step& step) { return plan::makes_payload(step.kind) && !step.raw; }

// kSumStays where the sum is never written to an output.
int reduced_parts(const plan::Lane& lane, bool finishes) {
  if (!finishes) return SliceAccumulator::kSumStays;
  return static_cast<int>(std::count_if(lane.steps.begin(), lane.steps.end(), [](const Step& step) {
    return step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce;
  }));
}

}  // namespace

HostCompute::HostCompute(const ComputeContext& context)
    : plan_(*context.plan),
      seed_(context.seed),
      math_({.type = plan_.call().type,
             .op = plan_.call().op,
             .world = context.world,
             .codec = plan_.codec(),
             .pool = context.pool,
             .averaged = plan_.call().averaged,
             .rank = context.rank}) {
  lanes_.reserve(plan_.schedule().lanes.size());
  for (const plan::Lane& planned : plan_.schedule().lanes) {
    Lane& lane = lanes_.emplace_back(math_);
    lane.plan = &planned;
    lane.finishes = std::any_of(planned.steps.begin(), planned.steps.end(),
                                [](const Step& step) { return step.kind == StepKind::finish; });
    lane.reduced_parts = reduced_parts(planned, lane.finishes);
    lane.sum.set_encodes(std::any_of(planned.steps.begin(), planned.steps.end(), encodes));
  }
}

void HostCompute::begin(const CallArguments& arguments) {
  arguments_ = &arguments;
  math_.premul_factor = arguments.premul_factor;
  math_.keys = PhaseKeys(seed_, arguments.random_counter.value_or(0));
  math_.residuals = arguments.feedback != nullptr ? arguments.feedback->residual() : nullptr;
  for (Lane& lane : lanes_) lane.kept_slices = 0;
}

// An element of a sum has the same index as in each rank's tensor.
void HostCompute::begin_slice(std::size_t index, std::uint64_t slice) {
  Lane& lane = lanes_[index];
  lane.slice = slice;
  const std::uint64_t first_element = lane.plan->input_begin + slice * plan_.slice_elements();
  lane.input.begin(first_element);
  lane.encoder.begin(first_element);
  lane.sum.begin(lane.reduced_parts, first_element);
}

void HostCompute::end_lane(std::size_t index) {
  Lane& lane = lanes_[index];
  lane.input.release();
  lane.encoder.release();
  lane.sum.release();
  lane.scratch.reset();
}

// ---- sending

Outgoing HostCompute::outgoing(std::size_t index, std::size_t step_index, GroupRank peer) {
  Lane& lane = lanes_[index];
  const Step& step = lane.plan->steps[step_index];
  if (step.kind != StepKind::send_sum && is_mapped(step, peer)) return {};
  const ConstBytes ready = ready_payload(lane, step);
  if (ready.data() != nullptr) return {ready, ready.size()};
  return {{}, plan_.payload_limit(elements(lane), step.raw)};
}

// What can be sent from where it lies: data as it is, and what is encoded already or used more than once.
ConstBytes HostCompute::ready_payload(Lane& lane, const Step& step) {
  if (step.kind == StepKind::forward) return lane.received;
  if (is_raw(step)) {
    if (step.kind == StepKind::send_sum) return lane.sum.raw_sum(elements(lane));
    if (step.kind == StepKind::send_input) return lane.encoder.raw_input(input_slice(lane), elements(lane));
    return {output_slice(lane), elements(lane) * math_.element_size()};
  }
  if (step.kind == StepKind::send_result) return lane.encoder.encoded();
  const bool is_used_again = step.peers.size() > 1 || lane.plan->steps.back().quantized;
  if (step.kind != StepKind::send_input || !is_used_again) return {};
  return lane.encoder.encode_once(input_slice(lane), elements(lane));
}

std::size_t HostCompute::write(std::size_t index, std::size_t step_index, GroupRank peer, Bytes payload) {
  Lane& lane = lanes_[index];
  const Step& step = lane.plan->steps[step_index];
  if (step.kind == StepKind::send_sum)
    return lane.sum.encode_sum(lane.encoder, elements(lane), payload, step.quantized);
  if (!is_mapped(step, peer)) {
    const std::byte* source = step.kind == StepKind::send_input ? input_slice(lane) : output_slice(lane);
    return lane.encoder.encode(source, elements(lane), payload);
  }
  if (step.kind != StepKind::send_input) {
    kernels::copy(mapped_slice(lane, peer, lane.plan->output_begin), output_slice(lane),
                  elements(lane) * math_.element_size());
  }
  return 0;
}

// ---- receiving

Status HostCompute::receive(std::size_t index, std::size_t step_index, ConstBytes payload) {
  Lane& lane = lanes_[index];
  const Step& step = lane.plan->steps[step_index];
  payload = payload_of(lane, step, payload);
  if (step.kind == StepKind::recv_reduce)
    return lane.sum.add_payload(payload, output_slice(lane), elements(lane), step.raw);
  lane.received = payload;
  if (lane.plan->scratch) return {};
  return lane.encoder.decode(payload, output_slice(lane), elements(lane), step.raw);
}

std::byte* HostCompute::find_destination(std::size_t index, std::uint64_t slice) {
  const Lane& lane = lanes_[index];
  if (lane.plan->scratch || arguments_->output == nullptr) return nullptr;
  return output_slice(lane, slice);
}

// ---- mapped buffers

bool HostCompute::is_mapped(const Step& step, GroupRank peer) const {
  if (arguments_->region == nullptr || !is_raw(step)) return false;
  return arguments_->region->of_member[peer.index()] != nullptr;
}

// In the peer's buffer, from element `begin` of the lane's chunk on.
std::byte* HostCompute::mapped_slice(const Lane& lane, GroupRank peer, std::uint64_t begin) const {
  return arguments_->region->of_member[peer.index()].get() + plan_.call().region_offset + offset(begin, lane.slice);
}

// An empty payload of a peer whose buffer is mapped stands for its input where it lies, or for its result, which it has
// written to this rank's output.
ConstBytes HostCompute::payload_of(Lane& lane, const Step& step, ConstBytes payload) {
  const GroupRank peer(step.peers[0]);
  if (!payload.empty() || !is_mapped(step, peer)) return payload;
  const std::size_t bytes = elements(lane) * math_.element_size();
  if (step.kind == StepKind::recv_reduce) return {mapped_slice(lane, peer, lane.plan->input_begin), bytes};
  return lane.plan->scratch ? ConstBytes() : ConstBytes(output_slice(lane), bytes);
}

// ---- local steps

Status HostCompute::local(std::size_t index, std::size_t step_index) {
  Lane& lane = lanes_[index];
  const Step& step = lane.plan->steps[step_index];
  if (step.kind == StepKind::local_reduce) return reduce_own(lane, step);
  if (step.kind == StepKind::local_copy) return copy_own(lane, step);
  const Step& last = lane.plan->steps.back();
  const bool is_requantized = last.kind == StepKind::send_result && !is_raw(last);
  if (is_requantized) {
    std::byte* const output = lane.plan->scratch ? nullptr : output_slice(lane);
    return lane.sum.finish_encoded(lane.encoder, output, elements(lane));
  }
  lane.sum.finish(output_slice(lane), elements(lane));
  return {};
}

Status HostCompute::reduce_own(Lane& lane, const Step& step) {
  if (step.quantized && math_.codec != nullptr) {
    const ConstBytes encoded = lane.encoder.encode_once(input_slice(lane), elements(lane));
    return lane.sum.add_payload(encoded, nullptr, elements(lane));
  }
  lane.sum.add_input(input_slice(lane), output_slice(lane), elements(lane));
  return {};
}

Status HostCompute::copy_own(Lane& lane, const Step& step) {
  if (step.quantized && math_.codec != nullptr && !math_.codec->is_exact()) {
    const ConstBytes encoded = lane.encoder.encode_once(input_slice(lane), elements(lane));
    return lane.encoder.decode(encoded, output_slice(lane), elements(lane), false);
  }
  copy_bytes(output_slice(lane), input_slice(lane), elements(lane) * math_.element_size());
  return {};
}

// ---- slices

// Bytes into a buffer, where the lane's chunk begins at element `begin`.
std::size_t HostCompute::offset(std::uint64_t begin, std::uint64_t slice) const {
  return static_cast<std::size_t>(begin + slice * plan_.slice_elements()) * math_.element_size();
}

const std::byte* HostCompute::input_slice(Lane& lane) {
  if (arguments_->input == nullptr) return nullptr;
  const std::byte* at = arguments_->input + offset(lane.plan->input_begin, lane.slice);
  keep(lane, at);
  return lane.input.take(at, elements(lane));
}

// Saves an element before its output is written. With error feedback its residual changes with it, so that one lane
// alone may use an element.
void HostCompute::keep(Lane& lane, const std::byte* input) {
  if (lane.kept_slices > lane.slice) return;
  lane.kept_slices = lane.slice + 1;
  arguments_->kept.keep({input, elements(lane) * math_.element_size()});
  if (arguments_->feedback == nullptr) return;
  arguments_->feedback->save(lane.plan->input_begin + lane.slice * plan_.slice_elements(), elements(lane));
}

void HostCompute::take_back() {
  for (const Lane& lane : lanes_) {
    const std::uint64_t kept = std::min(lane.plan->count, lane.kept_slices * plan_.slice_elements());
    const auto count = static_cast<std::size_t>(kept);
    if (count == 0) continue;
    arguments_->kept.give_back({arguments_->input + offset(lane.plan->input_begin, 0), count * math_.element_size()});
    if (arguments_->feedback != nullptr) arguments_->feedback->take_back(lane.plan->input_begin, count);
  }
}

std::byte* HostCompute::output_slice(Lane& lane) {
  if (lane.plan->scratch) {
    if (!lane.finishes) return nullptr;
    if (lane.scratch == nullptr) lane.scratch = math_.pool->take();
    return lane.scratch.get();
  }
  return arguments_->output == nullptr ? nullptr : output_slice(lane, lane.slice);
}

std::byte* HostCompute::output_slice(const Lane& lane, std::uint64_t slice) const {
  return arguments_->output + offset(lane.plan->output_begin, slice);
}

}  // namespace qccl::engine
