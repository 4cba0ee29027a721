// The plans of a group's calls: a repeated call is neither resolved nor planned again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "choice/resolve.h"
#include "engine/call/executable_plan.h"

namespace qccl::comm {

// The mapped region in which a call's buffer lies, and where the buffer begins. Region 0: none.
struct RegionOffset {
  std::uint64_t region = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const RegionOffset&, const RegionOffset&) = default;
};

// One thread at a time. Holds the last kPlans plans; allocates only for a new one.
class PlanCache {
  // All of a call that its plan depends on, besides the group's settings. The count comes first: it differs most often.
  using Signature = std::tuple<std::size_t, Collective, DataType, ReduceOp, Algorithm, int, std::size_t, RegionOffset,
                               std::optional<Compression>>;
  // Its fields, uncopied.
  static auto signature_of(const CollectiveCall& call, const RegionOffset& offset) {
    const CallOptions& options = call.options;
    return std::tie(call.count, call.collective, call.type, options.op, options.algorithm, options.root,
                    options.together, offset, options.compression);
  }

 public:
  PlanCache() { entries_.reserve(kPlans); }

  using Plan = std::shared_ptr<const engine::ExecutablePlan>;
  // False for a call that is resolved each time, to compare its counts in the resolved form, or to check its error
  // feedback or the kind of its memory.
  static bool has_signature(const CollectiveCall& call) {
    return !call.counts && call.options.error_feedback.is_none() && !call.options.stream;
  }

  // The plan added for an equal call that has a signature; null if there is none.
  Plan find(const CollectiveCall& call, const RegionOffset& offset) {
    const auto signature = signature_of(call, offset);
    return find_if([&](const Entry& entry) { return entry.signature && *entry.signature == signature; });
  }

  // The plan of a resolved call; null if there is none.
  Plan find(const engine::ResolvedCall& call) {
    return find_if([&](const Entry& entry) { return entry.plan->call() == call; });
  }

  // The codec of a plan with this compression; null if there is none.
  std::shared_ptr<const Codec> find_codec(const Compression& compression) const {
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.plan->call().compression == compression; });
    return found == entries_.end() ? nullptr : found->plan->shared_codec();
  }

  // Adds a plan, to be found by its resolved call and, in the first form, by an equal call that has a signature.
  void add(const CollectiveCall& call, const RegionOffset& offset, Plan plan) {
    add({signature_of(call, offset), std::move(plan)});
  }
  void add(Plan plan) { add({std::nullopt, std::move(plan)}); }
  // To be called when the group's settings change.
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::optional<Signature> signature;
    Plan plan;
  };
  // More different calls than a training step makes.
  static constexpr std::size_t kPlans = 128;

  template <class Matches>
  Plan find_if(const Matches& matches) {
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

  void add(Entry entry) {
    if (entries_.size() < kPlans) {
      entries_.push_back(std::move(entry));
      next_ = entries_.size();
      return;
    }
    entries_[oldest_] = std::move(entry);
    next_ = oldest_ + 1;
    oldest_ = (oldest_ + 1) % kPlans;
  }

  std::vector<Entry> entries_;  // a ring once it is full
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;  // follows the entry found last: programs repeat their calls in order
};

// The codecs of a group's messages: those of the last kCodecs different compressions. One thread at a time.
class MessageCodecs {
 public:
  // Null for none. InvalidArgument if there is no such codec or setting.
  Result<std::shared_ptr<const Codec>> find_or_make(const Compression& compression) {
    if (compression.is_none()) return std::shared_ptr<const Codec>();
    const auto found = std::ranges::find(codecs_, compression, &Entry::first);
    if (found != codecs_.end()) return found->second;
    QCCL_ASSIGN(std::shared_ptr<const Codec> made, make_codec(compression));
    if (codecs_.size() == kCodecs) codecs_.erase(codecs_.begin());
    return codecs_.emplace_back(compression, std::move(made)).second;
  }

 private:
  using Entry = std::pair<Compression, std::shared_ptr<const Codec>>;
  static constexpr std::size_t kCodecs = 8;
  std::vector<Entry> codecs_;
};

}  // namespace qccl::comm
