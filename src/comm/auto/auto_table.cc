#include "comm/auto/auto_table.h"

#include "codec/registry.h"
#include "plan/cost/choice.h"

namespace qccl::comm {

AutoTable::Class::Class(const Asked& asked)
    : candidates(candidates_of(asked.compression)),
      from_slowest(is_rooted(asked.collective)),
      trial(candidates.size()) {}

AutoTrial::Todo AutoTable::Class::next() {
  const AutoTrial::Todo todo = trial.next();
  active = trial.candidate();
  return todo;
}

void AutoTable::Class::conclude() {
  trial.conclude(times);
  active = trial.candidate();
}

const AutoTable::Item* AutoTable::find(const Asked& asked) const {
  const int size_class = plan::size_class(asked.elements);
  for (const Item& item : items_) {
    if (item.size_class == size_class && item.collective == asked.collective && item.type == asked.type &&
        item.compression == asked.compression) {
      return &item;
    }
  }
  return nullptr;
}

AutoTable::Class& AutoTable::of(const Asked& asked) {
  if (const Item* found = find(asked)) return *found->calls;
  items_.push_back({asked.compression, asked.collective, asked.type, plan::size_class(asked.elements),
                    std::make_unique<Class>(asked)});
  return *items_.back().calls;
}

Compression AutoTable::current(const Asked& asked) const {
  const Item* found = find(asked);
  return found == nullptr ? none() : found->calls->current();
}

}  // namespace qccl::comm
