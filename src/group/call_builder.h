// Turns a group's calls, as the user wrote them, into the engine's arguments: one place makes every choice of a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "choice/line_rate.h"
#include "group/call_staging.h"
#include "group/plan_cache.h"
#include "job/group_agreement.h"
#include "job/group_identity.h"

namespace qccl::internal {
class LogStore;
}

namespace qccl::comm {

class Context;

// The buffers of a group that its ranks map (group/mapped_regions.cc) and that are still in use. One thread at a time.
class MappedRegions {
 public:
  // The identity of the next region, the same on all ranks, which allocate in the same order.
  std::uint64_t next_id() { return ++made_; }
  void add(const std::shared_ptr<const engine::MappedRegion>& region) { regions_.push_back(region); }

  // The region that contains the range, and the bytes from its begin to the range.
  struct Match {
    std::shared_ptr<const engine::MappedRegion> region;
    std::uint64_t offset;
  };
  std::optional<Match> find(const void* begin, std::size_t bytes, int rank);

 private:
  std::vector<std::weak_ptr<const engine::MappedRegion>> regions_;
  std::uint64_t made_ = 0;
};

// Owns the group's settings, algorithms, trials and plans. One thread at a time, except for is_automatic().
class CallBuilder {
 public:
  // `group` outlives the object.
  CallBuilder(const GroupIdentity& group, Context& context, const GroupAgreement& agreement);
  CallBuilder(const CallBuilder&) = delete;
  CallBuilder& operator=(const CallBuilder&) = delete;

  // Throws Error, naming the group, if the call is wrong. A warm call finds its plan and allocates nothing.
  engine::CallArguments build(const CollectiveCall& call);
  engine::CallArguments build(const MessageCall& call);
  // The choices that build() would make now, but for a mapped region. Throws Error.
  engine::ResolvedCall resolve(const CollectiveCall& call) const {
    return comm::resolve(call, group_.size(), defaults_).take_or_throw();
  }
  const GroupDefaults& defaults() const { return defaults_; }

  // Any thread may ask.
  bool is_automatic(const CollectiveCall& call) const;
  // The trial of the call's class; null if its compression is not automatic after all.
  ClassTrial* trial_of(const CollectiveCall& call);

  // What averages are divided by, in place of the number of ranks.
  void average_over(int ranks) { defaults_.averaged = ranks; }
  // Calls from now on have the window, which is returned, the algorithms and the owners' shares for these lines.
  std::uint64_t use_lines(const AgreedLines& lines);

  MappedRegions& regions() { return regions_; }
  const Compression& compression() const { return defaults_.compression; }
  void set_compression(const Compression& compression);
  Nanoseconds timeout() const { return timeout_; }
  void set_timeout(Nanoseconds timeout) { timeout_ = timeout; }

 private:
  std::optional<MappedRegions::Match> find_region(const CollectiveCall& call);
  bool suits_region(const engine::ResolvedCall& resolved, const engine::MappedRegion& region,
                    const CallOptions& options) const;
  PlanCache::Plan plan_of(const CollectiveCall& call, const std::optional<MappedRegions::Match>& region);
  std::string invalid_reason(const engine::ExecutablePlan& plan, const CollectiveCall& call) const;
  template <class T>
  T take_or_throw(Result<T> result, std::string_view operation) const;
  template <class AnyCall>
  engine::CallArguments arguments_of(const AnyCall& call) const;

  const GroupIdentity& group_;
  const CallStaging staging_;
  MappedRegions regions_;
  const std::shared_ptr<internal::LogStore> log_;
  AlgorithmTable algorithms_;
  CompressionTrials trials_;
  PlanCache plans_;
  MessageCodecs message_codecs_;
  GroupDefaults defaults_;
  Nanoseconds timeout_;
  std::atomic<bool> defaults_to_automatic_{false};  // whether defaults_.compression is automatic
};

// The seconds that the cost model predicts for a call that the group's builder has built.
double predict_seconds(const engine::CallArguments& arguments, const GroupIdentity& group,
                       const GroupDefaults& defaults);

}  // namespace qccl::comm
