// A small operation in flight that goes through shared memory cells instead of frames: see cell_exchange.h.
#pragma once

#include "engine/collective/cell_exchange.h"
#include "engine/operation.h"

namespace qccl::engine {

class CellOperation : public Operation {
 public:
  // Meets `rounds` times a call.
  CellOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, std::uint64_t rounds = 1)
      : Operation(group, frame_sender), rounds_(rounds), exchange_(group, frame_sender, pool) {}

  bool can_run(const Group& group, const CallArguments& arguments) const override {
    return &group == &group_ && !arguments.message && arguments.region == nullptr && arguments.plan->call().board;
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
  Status on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  Status on_grant(GroupRank peer, const wire::FrameHeader& header) override;
  Status on_request(GroupRank peer, const wire::FrameHeader& header) override;
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override { return exchange_.meeting().lacks(member); }
  void drop_frames() override {}

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
  Status unexpected(GroupRank peer) const;

  const std::uint64_t rounds_;
  CellExchange exchange_;
  std::uint64_t round_ = 0;
};

}  // namespace qccl::engine
