#include "sim/size_compute.h"

#include <utility>

namespace qccl::sim {

SizeCompute::SizeCompute(const engine::ComputeContext& context, WorkMeter meter)
    : plan_(*context.plan), meter_(std::move(meter)), lanes_(plan_.schedule().lanes.size()) {}

void SizeCompute::begin_slice(std::size_t lane, std::uint64_t slice) { lanes_[lane] = {.slice = slice}; }

engine::Outgoing SizeCompute::outgoing(std::size_t lane, std::size_t step, GroupRank) {
  return {{}, plan_.payload_limit(elements(lane), plan_.schedule().lanes[lane].steps[step].raw)};
}

std::size_t SizeCompute::write(std::size_t lane, std::size_t step, GroupRank, Bytes payload) {
  if (std::exchange(lanes_[lane].encoded_step, step) != step) measure(lane, step);
  return payload.size();
}

Status SizeCompute::receive(std::size_t lane, std::size_t step, ConstBytes) {
  measure(lane, step);
  return {};
}

Status SizeCompute::local(std::size_t lane, std::size_t step) {
  measure(lane, step);
  return {};
}

std::size_t SizeCompute::elements(std::size_t lane) const {
  return plan_.slice_length(plan_.schedule().lanes[lane].count, lanes_[lane].slice);
}

void SizeCompute::measure(std::size_t lane, std::size_t step) const {
  meter_(plan::work_of(plan_.schedule().lanes[lane], step, plan_.codec() != nullptr), elements(lane));
}

}  // namespace qccl::sim
