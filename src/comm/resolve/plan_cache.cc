#include "comm/resolve/plan_cache.h"

#include <algorithm>
#include <utility>

namespace qccl::comm {

namespace {

// signature == signature_of(call, place), without making one.
bool matches(const CallSignature& signature, const CollectiveCall& call, const RegionPlace& place) {
  const CallOptions& options = call.options;
  return signature.count == call.count && signature.collective == call.collective && signature.type == call.type &&
         signature.op == options.op && signature.algorithm == options.algorithm && signature.root == options.root &&
         signature.place == place && signature.compression == options.compression;
}

}  // namespace

bool has_signature(const CollectiveCall& call) { return !call.counts && call.options.error_feedback.is_none(); }

CallSignature signature_of(const CollectiveCall& call, const RegionPlace& place) {
  return CallSignature{.count = call.count,
                       .collective = call.collective,
                       .type = call.type,
                       .op = call.options.op,
                       .algorithm = call.options.algorithm,
                       .root = call.options.root,
                       .place = place,
                       .compression = call.options.compression};
}

template <class Matches>
PlanCache::Plan PlanCache::find_if(const Matches& matches) {
  // The last one again, or the one that followed it the last time, or any.
  const std::size_t begin = next_ == 0 ? 0 : next_ - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = begin + i < entries_.size() ? begin + i : begin + i - entries_.size();
    if (!matches(entries_[at])) continue;
    next_ = at + 1;
    return entries_[at].plan;
  }
  return nullptr;
}

PlanCache::Plan PlanCache::find(const CollectiveCall& call, const RegionPlace& place) {
  return find_if([&](const Entry& entry) { return entry.signature && matches(*entry.signature, call, place); });
}

PlanCache::Plan PlanCache::find(const engine::ResolvedCall& call) {
  return find_if([&](const Entry& entry) { return entry.plan->call() == call; });
}

std::shared_ptr<const Codec> PlanCache::find_codec(const Compression& compression) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.plan->call().compression == compression; });
  return found == entries_.end() ? nullptr : found->plan->shared_codec();
}

void PlanCache::add(const std::optional<CallSignature>& signature, Plan plan) {
  if (entries_.size() < kPlans) {
    entries_.push_back({signature, std::move(plan)});
    next_ = entries_.size();
    return;
  }
  entries_[oldest_] = {signature, std::move(plan)};
  next_ = oldest_ + 1;
  oldest_ = (oldest_ + 1) % kPlans;
}

}  // namespace qccl::comm
