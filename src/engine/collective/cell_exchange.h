// One meeting of a group's ranks in shared memory cells (transport.h, ExchangeCells): each publishes its part with the
// call's fingerprint, then collects all parts in rank order and combines them.
//
// A group's meetings are numbered on their own and run strictly in order. A cell has two generations: publishing number
// n overwrites n - 2, which no rank reads any more. This rank finished n - 1, so every peer had published n - 1, which
// it does only after it has finished n - 2.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/call/call_arguments.h"
#include "engine/compute/input_source.h"
#include "engine/compute/slice_accumulator.h"
#include "engine/frame_sender.h"
#include "engine/group/group.h"

namespace qccl::engine {

// True if every rank's part of `call` fits a cell and nothing is compressed.
bool fits_board(const ResolvedCall& call, int world);

// One thread. Serves one call after another and keeps its memory.
class CellExchange {
 public:
  // The group has a cell of the transport's.
  CellExchange(Group& group, FrameSender& frame_sender, ScratchPool& pool);
  CellExchange(const CellExchange&) = delete;
  CellExchange& operator=(const CellExchange&) = delete;

  // Begins a call, which stays where it is until its end or rebind().
  void begin(const CallArguments& arguments, std::uint64_t number);
  // The call has moved.
  void rebind(const CallArguments& arguments) { arguments_ = &arguments; }

  // The number of the meeting is the next of the group.
  bool is_due() const { return group_.finished_board_sequence + 1 == number_; }
  bool is_published() const { return is_published_; }
  // This rank's part of the call.
  ConstBytes own_part();
  void publish(ConstBytes part);
  // After publish(): looks for the others' parts for about as long as a cell takes from core to core, and wakes those
  // that sleep. True once all parts are here.
  bool look_and_ring();
  // Looks once for the parts still missing.
  bool collect();
  // A peer was seen to make another call.
  bool differs() const { return differs_; }
  // All parts are here: writes the call's output.
  void combine();
  // The meeting is over; the next has the next number.
  void end();

  bool lacks(GroupRank member) const;
  std::size_t collected() const { return parts_.size(); }
  const MathContext& math() const { return math_; }

 private:
  const ResolvedCall& call() const { return arguments_->plan->call(); }
  const std::byte* own_input();
  void reduce(std::size_t offset_bytes);
  void take_parts(std::size_t offset_bytes);

  Group& group_;
  ExchangeCells& cells_;
  FrameSender& frame_sender_;
  const CallArguments* arguments_ = nullptr;
  std::uint64_t number_ = 0;
  std::uint64_t fingerprint_ = 0;
  MathContext math_;
  InputSource input_;
  SliceAccumulator sum_;
  bool is_published_ = false;
  bool differs_ = false;
  std::vector<const std::byte*> parts_;  // by group rank, collected in that order
};

}  // namespace qccl::engine
