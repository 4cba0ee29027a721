#pragma once

#include <cstdint>
#include <memory>

#include "engine/act/failure_handler.h"
#include "engine/act/frame_dispatcher.h"
#include "engine/act/peer_failures.h"
#include "engine/run/operation_factory.h"
#include "engine/state/ended_works.h"
#include "engine/state/engine_options.h"
#include "engine/state/group_table.h"
#include "engine/state/operation_recorder.h"
#include "engine/state/operation_table.h"
#include "engine/state/round_clock.h"

namespace qccl::engine {

// Numbers calls and makes them operations in flight, or runs small ones on the spot.
class CallStarter {
 public:
  CallStarter(const EngineOptions& options, RoundClock& clock, ScratchPool& pool, FrameSender& frame_sender,
              GroupTable& groups, OperationTable& operations, const OperationRecorder& recorder, CallLedger& ledger,
              EndedWorks& ended, FailureHandler& failures, PeerFailures& peer_failures, FrameDispatcher& dispatcher)
      : factory_(options, frame_sender, pool),
        options_(options),
        clock_(clock),
        frame_sender_(frame_sender),
        groups_(groups),
        operations_(operations),
        recorder_(recorder),
        ledger_(ledger),
        ended_(ended),
        failures_(failures),
        peer_failures_(peer_failures),
        dispatcher_(dispatcher) {}

  // See Engine.
  void post(CallArguments&& arguments);
  bool exchange_or_post(CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);

 private:
  // post(), as far as memory lasts; sets `claimed` to the error feedback that the call has claimed.
  void begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed);
  void refuse(CallArguments& arguments, ErrorInfo failure);
  void note_posted(Operation& posted);
  void post_message(Group& group, CallArguments&& arguments);

  Operation& begin_operation(Group& group, std::uint64_t number, CallArguments&& arguments);

  // ---- small calls on the spot
  bool exchange(Group& group, CallArguments&& arguments, const std::shared_ptr<internal::WorkState>& work);
  void prepare_exchange(Group& group, const CallArguments& arguments);
  void promote(Group& group, std::uint64_t sequence, CallArguments&& arguments, const CallTimer& timer);

  const OperationFactory factory_;
  const EngineOptions& options_;
  RoundClock& clock_;
  FrameSender& frame_sender_;
  GroupTable& groups_;
  OperationTable& operations_;
  const OperationRecorder& recorder_;
  CallLedger& ledger_;
  EndedWorks& ended_;
  FailureHandler& failures_;
  PeerFailures& peer_failures_;
  FrameDispatcher& dispatcher_;
};

}  // namespace qccl::engine
