#include "engine/run/cell_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/copy.h"

namespace qccl::engine {
namespace {

// How often a rank looks for the others' cells before it rings for its own. A peer that is awake has answered by then.
constexpr int kLooksBeforeRinging = 64;

// A piece of a mapped buffer that stays in L1 between its reduction and its copies to the other ranks.
constexpr std::size_t kMappedSliceBytes = 16 * 1024;
// Some 100 us, after which the engine turns to other work.
constexpr int kSlicesPerStep = 64;
constexpr std::uint64_t kMappedRounds = 2;

}  // namespace

CellMeeting::CellMeeting(Group& group, FrameSender& frame_sender)
    : group_(group), cells_(*frame_sender.transport().board()), frame_sender_(frame_sender) {
  parts_.reserve(group.ranks.size());
}

void CellMeeting::begin(std::uint64_t number, std::uint64_t fingerprint) {
  number_ = number;
  fingerprint_ = fingerprint;
  is_published_ = false;
  differs_ = false;
  parts_.clear();
}

void CellMeeting::publish(ConstBytes part) {
  cells_.publish(group_.id, number_, fingerprint_, part);
  frame_sender_.note_board_bytes(part.size());
  own_part_ = part.data();
  is_published_ = true;
}

bool CellMeeting::look_and_ring() {
  bool complete = collect();
  for (int i = 1; i < kLooksBeforeRinging && !complete && !differs_; ++i) complete = collect();
  cells_.ring(group_.id);
  return complete;
}

bool CellMeeting::collect() {
  while (parts_.size() < group_.ranks.size()) {
    const GroupRank member(parts_.size());
    if (member == group_.rank) {
      parts_.push_back(own_part_);
      continue;
    }
    const auto cell = cells_.read(group_.id, group_.world_rank(member), number_);
    if (!cell) return false;
    differs_ |= cell->digest != fingerprint_;
    if (differs_) return false;
    parts_.push_back(cell->payload);
  }
  return true;
}

bool CellMeeting::lacks(GroupRank member) const {
  return member != group_.rank && !cells_.read(group_.id, group_.world_rank(member), number_);
}

void CellMeeting::end() {
  group_.finished_board_sequence = number_++;
  is_published_ = false;
  parts_.clear();
}

CellExchange::CellExchange(Group& group, FrameSender& frame_sender, ScratchPool& pool)
    : group_(group),
      meeting_(group, frame_sender),
      math_({.type = DataType::uint8, .op = ReduceOp::sum, .world = group.world(), .codec = nullptr, .pool = &pool}),
      input_(math_),
      sum_(math_) {}

void CellExchange::begin(const CallArguments& arguments, std::uint64_t number) {
  arguments_ = &arguments;
  meeting_.begin(number, arguments.plan->fingerprint());
  math_.type = call().type;
  math_.op = call().op;
  math_.averaged = call().averaged;
  math_.premul_factor = arguments.premul_factor;
  input_.begin(0);
}

ConstBytes CellExchange::own_part() {
  if (call().collective == Collective::barrier) return {};
  const bool from_root = call().collective == Collective::broadcast || call().collective == Collective::scatter;
  if (from_root && GroupRank(call().root) != group_.rank) return {};
  const std::uint64_t elements = arguments_->plan->input_elements();
  return {input_.take(arguments_->input, elements), elements * math_.element_size()};
}

void CellExchange::combine() {
  const std::size_t bytes = static_cast<std::size_t>(call().count) * math_.element_size();
  if (bytes == 0) return;
  const bool is_root = GroupRank(call().root) == group_.rank;
  const std::size_t own = group_.rank.index() * bytes;
  const std::byte* root_part = meeting_.parts()[static_cast<std::size_t>(call().root)];
  switch (call().collective) {
    case Collective::all_reduce: return reduce(0);
    case Collective::reduce: return is_root ? reduce(0) : void();
    case Collective::reduce_scatter: return reduce(own);
    case Collective::all_gather: return take_parts(0);
    case Collective::gather: return is_root ? take_parts(0) : void();
    case Collective::all_to_all: return take_parts(own);
    case Collective::broadcast:
      if (!is_root) std::memcpy(arguments_->output, root_part, bytes);
      return;
    case Collective::scatter: std::memmove(arguments_->output, root_part + own, bytes); return;
    case Collective::barrier: return;
  }
}

void CellExchange::reduce(std::size_t offset_bytes) {
  const auto elements = static_cast<std::size_t>(call().count);
  sum_.begin(group_.world());
  for (const std::byte* part : meeting_.parts()) {
    // Sizes agree because the fingerprints do.
    const ConstBytes payload(part + offset_bytes, elements * math_.element_size());
    static_cast<void>(sum_.add_payload(payload, arguments_->output, elements));
  }
  sum_.finish(arguments_->output, elements);
  sum_.release();
  input_.release();
}

// Every rank's part from `offset_bytes` on, in rank order. A part that is in place is not touched: its owner may read
// it.
void CellExchange::take_parts(std::size_t offset_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(call().count) * math_.element_size();
  for (std::size_t member = 0; member < meeting_.parts().size(); ++member) {
    std::byte* const place = arguments_->output + member * bytes;
    const std::byte* const part = meeting_.parts()[member] + offset_bytes;
    if (part != place) std::memmove(place, part, bytes);
  }
}

void CellOperation::begin(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted) {
  Operation::begin(sequence, std::move(arguments), posted);
  exchange_.begin(arguments_, group_.take_board_numbers(rounds_));
  round_ = 0;
}

void CellOperation::adopt(std::uint64_t sequence, CallArguments&& arguments) {
  Operation::begin(sequence, std::move(arguments), kForever);
  exchange_.rebind(arguments_);
  round_ = 0;
}

Result<bool> CellOperation::advance() {
  CellMeeting& meeting = exchange_.meeting();
  if (!meeting.is_due()) return false;
  const bool publishes = !meeting.is_published();
  if (publishes) {
    const ConstBytes own = own_part();
    meeting.publish(own);
    note_sent(own.size());
  }
  if (!(publishes ? meeting.look_and_ring() : meeting.collect())) return publishes;
  if (!combine()) return true;
  meeting.end();
  ++round_;
  return true;
}

Status CellOperation::on_frame(GroupRank peer, Frame&&) {
  return unexpected(peer, "sent a frame of an operation that goes through shared memory");
}

Waiting CellOperation::waiting() const {
  Waiting result;
  const std::uint64_t part_bytes = input_elements(call(), group_.world(), call().root) * math().element_size();
  result.expected_bytes = part_bytes * group_.ranks.size();
  result.received_bytes = part_bytes * exchange_.meeting().parts().size();
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (lacks(member)) result.peers.push_back(member);
  }
  return result;
}

MappedOperation::MappedOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, const ExecutablePlan& plan)
    : CellOperation(group, frame_sender, pool, kMappedRounds),
      chunk_(chunk_ranges(plan.call().count, group.world(), 1)[group.rank.index()]),
      sum_(math()) {}

std::byte* MappedOperation::buffer(GroupRank member, std::uint64_t element) const {
  return arguments_.region->of_member[member.index()].get() + call().region_offset + element * math().element_size();
}

bool MappedOperation::combine() {
  if (round() > 0) return true;
  const std::uint64_t slice = kMappedSliceBytes / math().element_size();
  for (int i = 0; i < kSlicesPerStep && done_ < chunk_.count; ++i) {
    const std::uint64_t elements = std::min(slice, chunk_.count - done_);
    reduce_slice(chunk_.begin + done_, static_cast<std::size_t>(elements));
    done_ += elements;
  }
  if (done_ < chunk_.count) return false;
  sum_.release();
  return true;
}

void MappedOperation::reduce_slice(std::uint64_t first, std::size_t elements) {
  std::byte* const own = buffer(group_.rank, first);
  sum_.begin(group_.world());
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    sum_.add_input(buffer(member, first), own, elements);
  }
  sum_.finish(own, elements);
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (member != group_.rank) kernels::copy(buffer(member, first), own, elements * math().element_size());
  }
}

}  // namespace qccl::engine
