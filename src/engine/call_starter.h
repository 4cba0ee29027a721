// Numbers calls and makes them operations in flight, or runs small ones on the spot.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/frame_dispatcher.h"

namespace qccl::engine {

// One thread.
class CallStarter {
 public:
  CallStarter(EngineParts& parts, FailureHandler& failures, PeerFailures& peer_failures, FrameDispatcher& dispatcher)
      : parts_(parts), failures_(failures), peer_failures_(peer_failures), dispatcher_(dispatcher) {}

  // See Engine.
  void post(CallArguments&& arguments);
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);

 private:
  // post(), as far as memory lasts; sets `claimed` to the error feedback that the call has claimed.
  void begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed);
  void refuse(CallArguments& arguments, ErrorInfo failure);
  bool claim_feedback(CallArguments& arguments);
  void note_posted(Operation& posted);
  void post_message(Group& group, CallArguments&& arguments);

  Operation& begin_operation(Group& group, std::uint64_t number, CallArguments&& arguments);
  std::unique_ptr<Operation> make_operation(Group& group, const CallArguments& arguments);
  std::unique_ptr<Compute> make_compute(const Group& group, const ExecutablePlan& plan);

  // ---- small calls on the spot
  bool may_exchange(const Group* group, const CallArguments& arguments) const;
  bool exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);
  void prepare_exchange(Group& group, const CallArguments& arguments);
  void promote(Group& group, std::uint64_t sequence, CallArguments&& arguments);

  EngineParts& parts_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  FrameDispatcher& dispatcher_;
};

}  // namespace qccl::engine
