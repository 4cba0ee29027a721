#include "train/data_parallel.h"

namespace qccl::train {

Join::Join(DataParallel& model, const JoinOptions& options) : model_(model), options_(options) {}

// Later steps include all ranks again.
Join::~Join() { model_.state_->divisor = model_.state_->group().size(); }

// The collective that every rank calls before each batch of any rank.
Join::Ranks Join::count(bool active) {
  DataParallel::State& state = *model_.state_;
  std::vector<std::int32_t> counts{active ? 1 : 0, active && state.accumulations == 0 ? 1 : 0};
  state.group().all_reduce(counts);
  const Ranks ranks{counts[0], counts[1]};
  if (options_.throw_on_early_end && ranks.active > 0 && ranks.active < state.group().size()) {
    throw Error({.kind = ErrorKind::aborted,
                 .message = "QCCL rank " + std::to_string(state.group().rank()) + ", group '" + state.group().name() +
                            "': join: " + std::to_string(state.group().size() - ranks.active) +
                            " of the ranks have no batch left, and throw_on_early_end is set",
                 .rank = state.group().rank()});
  }
  return ranks;
}

void Join::next() {
  const Ranks ranks = count(true);
  if (!options_.divide_by_initial_world) model_.state_->divisor = ranks.active;
}

void Join::finish() {
  DataParallel::State& state = *model_.state_;
  bool is_last = true;
  for (Ranks ranks = count(false); ranks.active > 0; ranks = count(false)) {
    is_last = false;
    if (ranks.sending > 0) state.shadow();
  }
  std::vector<std::int32_t> last{is_last ? state.group().rank() : -1};
  state.group().all_reduce(last, {.op = ReduceOp::max});
  state.take_values_of(last[0]);
}

}  // namespace qccl::train
