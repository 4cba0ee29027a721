// The calls of a group as measurements: trials of automatic compression (compression_trial.h) and the rate of the
// lines to distant ranks (line_rate.h). Both go by the number of the call, so that all ranks choose alike. Calls in
// groups and lists do not count.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "choice/line_rate.h"
#include "group/call_builder.h"

namespace qccl::comm {

class Context;

// `mutex` guards the builder and the object. Both outlive it, and so does the group.
class MeasuredCalls {
 public:
  MeasuredCalls(std::mutex& mutex, CallBuilder& builder, const GroupIdentity& group, Context& context,
                const GroupAgreement& agreement);

  // Any thread may ask, without the mutex.
  bool counts(const CollectiveCall& call) const { return line_rate_ || builder_.is_automatic(call); }
  // Call it before each call that counts is built, without the mutex. Returns what measures the call, if it is timed.
  std::optional<TimedCall> begin(const CollectiveCall& call, Context& context);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void learn_line_rate(const CollectiveCall& call, Context& context, Lock& lock);
  std::optional<TimedCall> begin_timed(const CollectiveCall& call, Context& context, Lock& lock);
  // Posts an all_reduce of the group like any other, without waiting for it.
  void post(Comparison& comparison, ReduceOp op, Context& context, Lock& lock);
  // True if the values are now those of all ranks.
  static bool await(Comparison& comparison, Context& context, Lock& lock);

  std::mutex& mutex_;
  CallBuilder& builder_;
  const GroupIdentity& group_;
  std::optional<LineRate> line_rate_;  // nothing if the ranks are near or the rate is given
};

}  // namespace qccl::comm
