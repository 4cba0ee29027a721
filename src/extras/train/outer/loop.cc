// The public OuterLoop (qccl/outer.h).
#include <algorithm>
#include <utility>

#include "extras/train/outer/state.h"

namespace qccl::train {

OuterParameter OuterParameter::of(std::string name, std::span<float> values) {
  return {.name = std::move(name),
          .count = values.size(),
          .load = [values](std::span<float> to) { std::ranges::copy(values, to.begin()); },
          .store = [values](std::span<const float> from) { std::ranges::copy(from, values.begin()); }};
}

OuterLoop::OuterLoop(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options)
    : state_(std::make_unique<State>(std::move(group), std::move(parameters), options)) {}
OuterLoop::~OuterLoop() = default;
OuterLoop::OuterLoop(OuterLoop&&) noexcept = default;

void OuterLoop::step(double samples) { state_->step(samples); }
void OuterLoop::finish() { state_->finish(); }
void OuterLoop::regroup(Communicator group) { state_->regroup(group); }
const Communicator& OuterLoop::group() const { return state_->group(); }
std::size_t OuterLoop::fragments() const { return state_->run().model.fragments().size(); }
const std::vector<std::size_t>& OuterLoop::members(std::size_t fragment) const {
  return state_->run().model.fragments().at(fragment).members;
}
std::span<const float> OuterLoop::global(std::size_t fragment) const {
  return state_->run().model.fragments().at(fragment).global;
}
std::vector<float> OuterLoop::residual(std::size_t fragment) const {
  const Residual& own = state_->run().model.fragments().at(fragment).residual;
  std::vector<float> values(own.size());
  own.read(values, 1);
  return values;
}
bool OuterLoop::begins_round() const { return state_->run().begins_round(); }
bool OuterLoop::is_lost() const { return state_->is_lost(); }
void OuterLoop::begin_waiting() { state_->begin_waiting(); }
std::uint64_t OuterLoop::rounds() const { return state_->run().position.rounds; }
std::uint64_t OuterLoop::rounds_begun() const { return rounds() + (state_->run().position.is_begun ? 1 : 0); }
std::uint64_t OuterLoop::steps() const { return state_->run().position.steps; }
const std::vector<OuterRound>& OuterLoop::history() const { return state_->run().journal.rounds; }
std::vector<std::byte> OuterLoop::save() const {
  state_->run().blend_last();
  return state_->run().save();
}
void OuterLoop::load(std::span<const std::byte> saved, bool is_own) { state_->load(saved, is_own); }

}  // namespace qccl::train
