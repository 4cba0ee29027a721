// A collective that is ready to run any number of times on one rank of a group: the call that the ranks agree on, its
// codec, and this rank's schedule and streams.
//
// Made once for each different call (PlanCache) and never changed. Shared by the group's cache, the operations in
// flight and those kept for reuse. Any thread may read it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/rank.h"
#include "codec/codec.h"
#include "engine/call/resolved_call.h"
#include "engine/call/stream_layout.h"
#include "plan/plan.h"

namespace qccl::engine {

class ExecutablePlan {
 public:
  // For rank `rank` of a group of `world`. `codec` is that of call.compression, null for none.
  ExecutablePlan(const ResolvedCall& call, int world, GroupRank rank, std::shared_ptr<const Codec> codec);
  ExecutablePlan(const ExecutablePlan&) = delete;
  ExecutablePlan& operator=(const ExecutablePlan&) = delete;

  const ResolvedCall& call() const { return *call_; }
  // Outlives the plan: late frames still name the call.
  const std::shared_ptr<const ResolvedCall>& shared_call() const { return call_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const Codec* codec() const { return codec_.get(); }  // null: raw
  const std::shared_ptr<const Codec>& shared_codec() const { return codec_; }
  std::uint64_t slice_elements() const { return slice_elements_; }
  // Slices of a stream of so many elements, and the elements of one of them. A stream without elements (a barrier's)
  // has one slice without payload.
  std::uint64_t slice_count(std::uint64_t elements) const;
  std::size_t slice_length(std::uint64_t elements, std::uint64_t slice) const;
  // The most bytes that so many elements take as payload; `raw`: uncompressed whatever the codec.
  std::size_t payload_limit(std::uint64_t elements, bool raw) const;
  // Has no lanes if the call goes through cells.
  const plan::RankSchedule& schedule() const { return schedule_; }
  const StreamLayout& streams() const { return streams_; }
  // Elements of the caller's buffers on this rank.
  std::uint64_t input_elements() const { return input_elements_; }
  std::uint64_t output_elements() const { return output_elements_; }

 private:
  const std::shared_ptr<const ResolvedCall> call_;
  const std::uint64_t fingerprint_;
  const std::shared_ptr<const Codec> codec_;
  const std::uint64_t slice_elements_;
  const std::uint64_t input_elements_;
  const std::uint64_t output_elements_;
  const plan::RankSchedule schedule_;
  const StreamLayout streams_;
};

}  // namespace qccl::engine
