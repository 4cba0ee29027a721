// Small collectives through shared memory cells (transport.h, ExchangeCells) instead of frames: the group's ranks meet.
// Each publishes its part with the call's fingerprint, then collects all parts in rank order and combines them.
//
// A group's meetings are numbered on their own and run strictly in order. A cell has two generations: publishing number
// n overwrites n - 2, which no rank reads any more. This rank finished n - 1, so every peer had published n - 1, which
// it does only after it has finished n - 2.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/geometry.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/math_context.h"
#include "engine/compute/slice_encoder.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/group.h"
#include "engine/state/operation.h"

namespace qccl::engine {

// One meeting after another. One thread.
class CellMeeting {
 public:
  // The group has a cell of the transport's.
  CellMeeting(Group& group, FrameSender& frame_sender);

  void begin(std::uint64_t number, std::uint64_t fingerprint);
  // The meeting is the group's next.
  bool is_due() const { return group_.finished_board_sequence + 1 == number_; }
  // This rank's part, which stays in place until end().
  void publish(ConstBytes part);
  bool is_published() const { return is_published_; }
  // After publish(): looks for the others' parts for about as long as a cell takes from core to core, then wakes the
  // ranks that sleep. True once all parts are here.
  bool look_and_ring();
  // Looks once for the parts still missing.
  bool collect();
  // A peer was seen to make another call.
  bool differs() const { return differs_; }
  // By group rank, those that are here.
  const std::vector<const std::byte*>& parts() const { return parts_; }
  bool lacks(GroupRank member) const;
  // The meeting is over; the next has the next number.
  void end();

 private:
  Group& group_;
  ExchangeCells& cells_;
  FrameSender& frame_sender_;
  const std::byte* own_part_ = nullptr;
  // Set by begin().
  std::uint64_t number_;
  std::uint64_t fingerprint_;
  bool is_published_;
  bool differs_;
  std::vector<const std::byte*> parts_;
};

// The calls that meet once, one after another; keeps its memory. One thread.
class CellExchange {
 public:
  CellExchange(Group& group, FrameSender& frame_sender, ScratchPool& pool);
  CellExchange(const CellExchange&) = delete;
  CellExchange& operator=(const CellExchange&) = delete;

  // Begins a call, which stays where it is until its end or rebind().
  void begin(const CallArguments& arguments, std::uint64_t number);
  // The call has moved.
  void rebind(const CallArguments& arguments) { arguments_ = &arguments; }
  CellMeeting& meeting() { return meeting_; }
  const CellMeeting& meeting() const { return meeting_; }
  // This rank's part of the call.
  ConstBytes own_part();
  // All parts are here: writes the call's output.
  void combine();
  const MathContext& math() const { return math_; }

 private:
  const ResolvedCall& call() const { return arguments_->plan->call(); }
  void reduce(std::size_t offset_bytes);
  void take_parts(std::size_t offset_bytes);

  const Group& group_;
  CellMeeting meeting_;
  const CallArguments* arguments_ = nullptr;
  MathContext math_;
  InputSource input_;
  SliceAccumulator sum_;
};

// Such a call in flight: it has not ended on the spot (CallStarter).
class CellOperation : public Operation {
 public:
  // Meets `rounds` times a call.
  CellOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, std::uint64_t rounds = 1)
      : Operation(group, frame_sender), rounds_(rounds), exchange_(group, frame_sender, pool) {}

  bool can_run(const CallArguments& arguments) const override {
    return !arguments.message && arguments.region == nullptr && arguments.plan->call().board;
  }
  bool is_on_board() const override { return true; }
  void begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) override;
  // For a call that is begun without an operation, and its operation if it does not end at once.
  CellExchange& exchange() { return exchange_; }
  void adopt(std::uint64_t sequence, CallArguments&& arguments);

  Result<bool> advance() override;
  bool finished() const override { return round_ == rounds_; }
  bool has_differing_call() const override { return exchange_.meeting().differs(); }
  // Ranks that send frames of this sequence number have made another call, and their fingerprint shows it first.
  Status on_frame(GroupRank peer, Frame&& frame) override;
  Waiting waiting() const override;
  // Once it has finished, the meeting is the group's next, for which nobody has to have come.
  bool lacks(GroupRank member) const override { return !finished() && exchange_.meeting().lacks(member); }

 protected:
  // This rank's part in a round.
  virtual ConstBytes own_part() { return exchange_.own_part(); }
  // With all parts of a round here: called until it returns true, when the round is done.
  virtual bool combine() {
    exchange_.combine();
    return true;
  }

  std::uint64_t round() const { return round_; }
  const MathContext& math() const { return exchange_.math(); }

 private:
  const std::uint64_t rounds_;
  CellExchange exchange_;
  std::uint64_t round_;  // set by begin() and adopt()
};

// all_reduce in place of a buffer that every rank of the group maps (MappedRegion): each rank reduces its own chunk
// over all ranks' buffers, in rank order, and writes the result into all of them. Nothing goes through cells. The ranks
// meet before, so that all inputs are there, and after, so that all results are.
class MappedOperation final : public CellOperation {
 public:
  // For calls of `plan` whose region is on the board.
  MappedOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, const ExecutablePlan& plan);

  bool can_run(const CallArguments& arguments) const override {
    return !arguments.message && reduces_on_board(arguments) && arguments.plan == arguments_.plan;
  }
  void begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) override {
    CellOperation::begin(sequence, std::move(arguments), posted);
    done_ = 0;
  }

 private:
  ConstBytes own_part() override { return {}; }
  bool combine() override;
  void reduce_slice(std::uint64_t first, std::size_t elements);
  std::byte* buffer(GroupRank member, std::uint64_t element) const;

  const Range chunk_;   // of this rank
  std::uint64_t done_;  // set by begin()
  SliceAccumulator sum_;
};

}  // namespace qccl::engine
