#include "comm/auto/compression_trials.h"

#include "codec/registry.h"
#include "plan/cost/choice.h"

namespace qccl::comm {

CompressionTrials::Class::Class(const Asked& asked)
    : candidates(candidates_of(asked.compression)),
      from_slowest(is_rooted(asked.collective)),
      trial(candidates.size()) {}

CompressionTrial::Todo CompressionTrials::Class::next() {
  const CompressionTrial::Todo todo = trial.next();
  active = trial.candidate();
  return todo;
}

void CompressionTrials::Class::conclude() {
  trial.conclude(times);
  active = trial.candidate();
}

const CompressionTrials::Item* CompressionTrials::find(const Asked& asked) const {
  const int size_class = plan::size_class(asked.elements);
  for (const Item& item : items_) {
    if (item.size_class == size_class && item.collective == asked.collective && item.type == asked.type &&
        item.compression == asked.compression) {
      return &item;
    }
  }
  return nullptr;
}

CompressionTrials::Class& CompressionTrials::of(const Asked& asked) {
  if (const Item* found = find(asked)) return *found->calls;
  items_.push_back({asked.compression, asked.collective, asked.type, plan::size_class(asked.elements),
                    std::make_unique<Class>(asked)});
  return *items_.back().calls;
}

Compression CompressionTrials::current(const Asked& asked) const {
  const Item* found = find(asked);
  return found == nullptr ? none() : found->calls->current();
}

}  // namespace qccl::comm
