// A small operation in flight that goes through shared memory cells instead of frames: see cell_exchange.h.
#pragma once

#include "engine/collective/cell_exchange.h"
#include "engine/operation.h"

namespace qccl::engine {

class CellOperation : public Operation {
 public:
  // Meets `rounds` times, under the numbers from `number` on.
  CellOperation(Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                FrameSender& frame_sender, ScratchPool& pool, std::uint64_t number, std::uint64_t rounds = 1);

  bool serves(const Group& group, const CallArguments& arguments) const override {
    return &group == &group_ && !arguments.message && arguments.region == nullptr && arguments.plan->call().board;
  }
  bool is_on_board() const override { return true; }
  void restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted, std::uint64_t number);
  // For a call that is begun without an operation, and its operation if it does not end at once.
  CellExchange& exchange() { return exchange_; }
  void adopt(std::uint64_t sequence, CallArguments&& arguments);

  Result<bool> advance() override;
  bool finished() const override { return round_ == rounds_; }
  bool has_differing_call() const override { return exchange_.differs(); }
  // Frames of this sequence number come only from ranks that called something else, which the
  // fingerprint tells before they get here.
  Status on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  Status on_grant(GroupRank peer, const wire::FrameHeader& header) override;
  Status on_request(GroupRank peer, const wire::FrameHeader& header) override;
  Waiting waiting() const override;
  bool lacks(GroupRank member) const override { return exchange_.lacks(member); }
  void drop_frames() override {}

 protected:
  // What this rank shows in a round.
  virtual ConstBytes own_part() { return exchange_.own_part(); }
  // Called when all ranks have shown their parts of a round, again and again until it says true: all done.
  virtual bool combine();

  std::uint64_t round() const { return round_; }
  const MathContext& math() const { return exchange_.math(); }

 private:
  Status unexpected(GroupRank peer) const;

  const std::uint64_t rounds_;
  CellExchange exchange_;
  std::uint64_t round_ = 0;
};

}  // namespace qccl::engine
