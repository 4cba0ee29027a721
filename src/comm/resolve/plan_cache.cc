#include "comm/resolve/plan_cache.h"

#include <algorithm>
#include <utility>

namespace qccl::comm {
namespace {

// The fields of a PlanCache::Signature, uncopied.
auto signature_of(const CollectiveCall& call, const RegionOffset& offset) {
  const CallOptions& options = call.options;
  return std::tie(call.count, call.collective, call.type, options.op, options.algorithm, options.root, offset,
                  options.compression);
}

}  // namespace

template <class Matches>
PlanCache::Plan PlanCache::find_if(const Matches& matches) {
  // First the entry found last, then the one that followed it, then the others.
  const std::size_t begin = next_ == 0 ? 0 : next_ - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = begin + i < entries_.size() ? begin + i : begin + i - entries_.size();
    if (!matches(entries_[at])) continue;
    next_ = at + 1;
    return entries_[at].plan;
  }
  return nullptr;
}

PlanCache::Plan PlanCache::find(const CollectiveCall& call, const RegionOffset& offset) {
  const auto signature = signature_of(call, offset);
  return find_if([&](const Entry& entry) { return entry.signature && *entry.signature == signature; });
}

PlanCache::Plan PlanCache::find(const engine::ResolvedCall& call) {
  return find_if([&](const Entry& entry) { return entry.plan->call() == call; });
}

std::shared_ptr<const Codec> PlanCache::find_codec(const Compression& compression) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.plan->call().compression == compression; });
  return found == entries_.end() ? nullptr : found->plan->shared_codec();
}

void PlanCache::add(const CollectiveCall& call, const RegionOffset& offset, Plan plan) {
  add({signature_of(call, offset), std::move(plan)});
}

void PlanCache::add(Entry entry) {
  if (entries_.size() < kPlans) {
    entries_.push_back(std::move(entry));
    next_ = entries_.size();
    return;
  }
  entries_[oldest_] = std::move(entry);
  next_ = oldest_ + 1;
  oldest_ = (oldest_ + 1) % kPlans;
}

}  // namespace qccl::comm
