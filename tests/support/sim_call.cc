#include "support/sim_call.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

#include "plan/algorithms/registry.h"
#include "support/reference.h"

namespace qccl::testing {

SimGroup world_group(const SimWorld& world) {
  SimGroup group;
  group.ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

SimCall::SimCall(SimWorld& world, SimGroup group, const engine::ResolvedCall& call, const Data& data)
    : world_(world), group_(std::move(group)), call_(call) {
  inputs_ = make_inputs(data.pattern, call.type, most_input_elements(call, group_.size()), group_.size(), data.seed);
  for (int member = 0; member < group_.size(); ++member) {
    buffers_.emplace_back(call, member, group_.size(), inputs_[static_cast<std::size_t>(member)], data.placement);
  }
  works_.resize(group_.ranks.size());
  world_.set_members(group_.id, group_.ranks);
}

void SimCall::post(int member, Nanoseconds timeout) {
  const auto at = static_cast<std::size_t>(member);
  works_[at] = world_.post(group_.ranks[at], call_, {buffers_[at].input(), buffers_[at].output(), timeout, group_.id});
}

void SimCall::post_all() {
  for (int member = 0; member < group_.size(); ++member) post(member);
}

std::vector<SimWork> SimCall::works() const {
  std::vector<SimWork> posted;
  for (const SimWork& work : works_) {
    if (work != nullptr) posted.push_back(work);
  }
  return posted;
}

const internal::SharedFailure& SimCall::failure(int member) const {
  const SimWork& work = works_[static_cast<std::size_t>(member)];
  if (work == nullptr || !work->done()) throw std::logic_error("the operation has not ended: " + call_.describe());
  return work->failure();
}

std::string SimCall::take_outputs(std::vector<ByteVector>& outputs) const {
  for (int member = 0; member < group_.size(); ++member) {
    const auto at = static_cast<std::size_t>(member);
    const std::string who = fmt::format("{} on member {}: ", call_.describe(), member);
    if (works_[at] == nullptr || !works_[at]->done()) return who + "has not ended";
    if (works_[at]->failure()) return who + works_[at]->failure()->message;
    if (const auto damage = buffers_[at].damage(); !damage.empty()) return who + damage;
    outputs.push_back(buffers_[at].result());
    if (group_.size() == 1) outputs[0] = with_plain_nans(call_.type, outputs[0]);
  }
  return {};
}

std::string SimCall::difference_from_reference(const std::vector<ByteVector>& outputs) const {
  auto expected = expected_outputs(call_, inputs_);
  if (group_.size() == 1) expected[0] = with_plain_nans(call_.type, expected[0]);
  return difference(call_.type, outputs, expected);
}

std::string SimCall::verify_exact() const {
  std::vector<ByteVector> outputs;
  const std::string failed = take_outputs(outputs);
  return failed.empty() ? difference_from_reference(outputs) : failed;
}

std::string SimCall::verify() const {
  std::vector<ByteVector> outputs;
  if (std::string failed = take_outputs(outputs); !failed.empty()) return failed;
  std::string problem;
  // These sums round differently in another order of addition.
  const bool sums = is_floating(call_.type) &&
                    (call_.op == ReduceOp::sum || call_.op == ReduceOp::avg || call_.op == ReduceOp::premul_sum);
  const bool in_rank_order = plan::adds_in_rank_order(call_.collective, call_.algorithm);
  const bool is_exact = !is_reduction(call_.collective) || in_rank_order || !sums;
  if (call_.compression.is_none() && is_exact) {
    problem = difference_from_reference(outputs);
  } else {
    if (call_.collective == Collective::all_reduce) {
      problem = difference(call_.type, outputs, std::vector<ByteVector>(outputs.size(), outputs[0]));
    }
    if (problem.empty()) problem = check_bound(call_, inputs_, outputs);
  }
  return problem.empty() ? "" : call_.describe() + ": " + problem;
}

std::vector<SimWork> works_of(const std::deque<SimCall>& calls) {
  std::vector<SimWork> works;
  for (const SimCall& call : calls) {
    for (SimWork& work : call.works()) works.push_back(std::move(work));
  }
  return works;
}

}  // namespace qccl::testing
