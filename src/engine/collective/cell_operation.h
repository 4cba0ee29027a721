// A small operation through shared memory cells instead of frames (transport.h, ExchangeCells): every
// rank publishes its input with the call's fingerprint, then reads all cells in rank order.
//
// A group's board operations are numbered on their own and run strictly in order. A cell has two
// generations: publishing number n overwrites n - 2, which nobody reads any more, because this
// rank finished n - 1, for which every peer had published n - 1, which it does only after it
// finished n - 2.
#pragma once

#include "engine/compute/input_source.h"
#include "engine/compute/slice_accumulator.h"
#include "engine/operation.h"

namespace qccl::engine {

// True if every rank's part of `call` fits a cell and nothing is compressed.
bool fits_board(const ResolvedCall& call, int world);

class CellOperation : public Operation {
 public:
  // Meets `rounds` times, under the numbers from `board_sequence` on.
  CellOperation(Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                FrameSender& frame_sender, BufferPool& pool, std::uint64_t board_sequence, std::uint64_t rounds = 1);

  bool serves(const Group& group, const CallArguments& arguments) const override {
    return &group == &group_ && !arguments.message && arguments.region == nullptr && arguments.plan->call().board;
  }
  bool is_on_board() const override { return true; }
  void restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted, std::uint64_t board_sequence);

  Result<bool> advance() override;
  bool finished() const override { return finished_; }
  bool has_differing_call() const override { return differs_; }
  // Frames of this sequence number come only from ranks that called something else, which the
  // fingerprint tells before they get here.
  Status on_data(int peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  Status on_grant(int peer, const wire::FrameHeader& header) override;
  Status on_request(int peer, const wire::FrameHeader& header) override;
  Waiting waiting() const override;
  bool lacks(int member) const override;
  void drop_frames() override {}

 protected:
  // What this rank shows in a round.
  virtual ConstBytes own_part();
  // Called when all ranks have shown their parts of a round, again and again until it says true: all done.
  virtual bool combine();

  std::uint64_t round() const { return round_; }
  const MathContext& math() const { return math_; }

 private:
  MathContext math_context() const;
  const std::byte* own_input();
  bool collect();
  void combine_parts();
  void reduce(std::size_t offset_bytes);
  void take_parts(std::size_t offset_bytes);
  Status unexpected(int peer) const;

  Group& owner_;
  ExchangeCells& board_;
  std::uint64_t board_sequence_;
  const std::uint64_t rounds_;
  MathContext math_;
  InputSource input_;
  SliceAccumulator sum_;
  std::uint64_t round_ = 0;
  bool published_ = false;
  bool finished_ = false;
  bool differs_ = false;
  std::vector<const std::byte*> parts_;  // by group rank, collected in that order
};

}  // namespace qccl::engine
