#include "engine/state/operation_table.h"

#include <iterator>
#include <utility>

namespace qccl::engine {

Operation* OperationTable::find(const Group& group, std::uint64_t sequence) const {
  for (const auto& operation : list_) {
    if (operation == nullptr || operation->is_message()) continue;
    if (operation->sequence() == sequence && &operation->group() == &group) return operation.get();
  }
  return nullptr;
}

Operation* OperationTable::oldest(const Group& group) const {
  const auto found = std::find_if(list_.begin(), list_.end(), [&](const auto& operation) {
    return operation != nullptr && &operation->group() == &group;
  });
  return found == list_.end() ? nullptr : found->get();
}

void OperationTable::park(std::unique_ptr<Operation> operation) {
  operation->park();
  if (parked_.size() == kMaxParked) parked_.erase(parked_.begin());
  parked_.push_back(std::move(operation));
}

std::unique_ptr<Operation> OperationTable::take_parked(const Group& group, const CallArguments& arguments) {
  const auto found = std::find_if(parked_.rbegin(), parked_.rend(), [&](const auto& operation) {
    return &operation->group() == &group && operation->can_run(arguments);
  });
  if (found == parked_.rend()) return nullptr;
  std::unique_ptr<Operation> operation = std::move(*found);
  parked_.erase(std::next(found).base());
  return operation;
}

std::size_t OperationTable::start_timers(TimePoint now) {
  if (!has_untimed_) return 0;
  has_untimed_ = false;
  std::size_t started = 0;
  for (const auto& operation : list_) {
    if (operation->deadline() != kForever) continue;
    operation->start(now);
    note_deadline(operation->deadline());
    CallTimer& timer = operation->timer();
    timer = {timer.weight > 0 ? timer.since : now, 1};
    ++started;
  }
  return started;
}

}  // namespace qccl::engine
