#include "engine/collective/cell_operation.h"

#include <fmt/format.h>

#include <cstring>

namespace qccl::engine {
namespace {

// How often an operation looks for the others' cells before it rings for its own: about the time that a cell takes
// from core to core. Who is awake has answered by then.
constexpr int kLooksBeforeRinging = 64;

}  // namespace

bool fits_board(const ResolvedCall& call, int world) {
  return call.compression.is_none() && call.counts.empty() &&
         input_elements(call, world, call.root) <= kBoardPayloadBytes / element_bytes(call.type);
}

CellOperation::CellOperation(Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                             FrameSender& frame_sender, BufferPool& pool, std::uint64_t board_sequence,
                             std::uint64_t rounds)
    : Operation(group, sequence, std::move(arguments), posted, frame_sender, pool),
      owner_(group),
      board_(*frame_sender.transport().board()),
      board_sequence_(board_sequence),
      rounds_(rounds),
      math_(math_context()) {
  parts_.reserve(static_cast<std::size_t>(group.world()));
}

MathContext CellOperation::math_context() const {
  return {call().type, call().op, group_.world(), nullptr, &pool_, arguments_.premul_factor};
}

void CellOperation::restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                            std::uint64_t board_sequence) {
  Operation::restart(sequence, std::move(arguments), posted);
  board_sequence_ = board_sequence;
  math_ = math_context();
  round_ = 0;
  published_ = false;
  finished_ = false;
  parts_.clear();
  input_.begin(0);
}

const std::byte* CellOperation::own_input() {
  return input_.take(math_, arguments_.input, input_elements(call(), group_.world(), group_.rank));
}

ConstBytes CellOperation::own_part() {
  if (call().collective == Collective::barrier) return {};
  const bool from_root = call().collective == Collective::broadcast || call().collective == Collective::scatter;
  if (from_root && call().root != group_.rank) return {};
  return {own_input(), input_elements(call(), group_.world(), group_.rank) * element_bytes(call().type)};
}

Result<bool> CellOperation::advance() {
  if (owner_.finished_board_sequence + 1 != board_sequence_ + round_) return false;
  const bool publishes = !published_;
  if (publishes) {
    const ConstBytes own = own_part();
    board_.publish(group_.id, board_sequence_ + round_, fingerprint(), own);
    frame_sender_.counters().board_bytes += own.size();
    note_sent(own.size());
    published_ = true;
  }
  bool complete = collect();
  if (publishes) {
    for (int i = 1; i < kLooksBeforeRinging && !complete && !differs_; ++i) complete = collect();
    board_.ring(group_.id);
  }
  if (!complete) return publishes;
  if (!combine()) return true;
  owner_.finished_board_sequence = board_sequence_ + round_;
  parts_.clear();
  published_ = false;
  finished_ = ++round_ == rounds_;
  return true;
}

// Looks for the cells still missing, in rank order; true once it has all.
bool CellOperation::collect() {
  while (parts_.size() < group_.ranks.size()) {
    const int member = static_cast<int>(parts_.size());
    if (member == group_.rank) {
      parts_.push_back(own_input());
      continue;
    }
    const auto cell = board_.read(group_.id, group_.world_rank(member), board_sequence_ + round_);
    if (!cell) return false;
    differs_ |= cell->digest != fingerprint();
    if (differs_) return false;
    parts_.push_back(cell->payload);
  }
  return true;
}

void CellOperation::reduce(std::size_t offset_bytes) {
  const auto elements = static_cast<std::size_t>(call().count);
  sum_.begin(group_.world());
  for (const std::byte* part : parts_) {
    // Sizes agree because the fingerprints do.
    static_cast<void>(
        sum_.add_payload(math_, {part + offset_bytes, elements * math_.element_size()}, arguments_.output, elements));
  }
  sum_.finish(math_, arguments_.output, elements);
  sum_.release();
  input_.release();
}

bool CellOperation::combine() {
  combine_parts();
  return true;
}

void CellOperation::combine_parts() {
  const std::size_t bytes = static_cast<std::size_t>(call().count) * element_bytes(call().type);
  if (bytes == 0) return;
  const bool is_root = call().root == group_.rank;
  const std::size_t own = static_cast<std::size_t>(group_.rank) * bytes;
  const std::byte* root_part = parts_[static_cast<std::size_t>(call().root)];
  switch (call().collective) {
    case Collective::all_reduce: return reduce(0);
    case Collective::reduce: return is_root ? reduce(0) : void();
    case Collective::reduce_scatter: return reduce(own);
    case Collective::all_gather: return take_parts(0);
    case Collective::gather: return is_root ? take_parts(0) : void();
    case Collective::all_to_all: return take_parts(own);
    case Collective::broadcast:
      if (!is_root) std::memcpy(arguments_.output, root_part, bytes);
      return;
    case Collective::scatter: std::memmove(arguments_.output, root_part + own, bytes); return;
    case Collective::barrier: return;
  }
}

// Every rank's part from `offset_bytes` on, in rank order. What is in its place is not touched: its owner may read it.
void CellOperation::take_parts(std::size_t offset_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(call().count) * math_.element_size();
  for (std::size_t member = 0; member < parts_.size(); ++member) {
    std::byte* const place = arguments_.output + member * bytes;
    const std::byte* const part = parts_[member] + offset_bytes;
    if (part != place) std::memmove(place, part, bytes);
  }
}

Status CellOperation::unexpected(int peer) const {
  return Failure(
      ErrorKind::corrupt_data,
      fmt::format("rank {} sent a frame of an operation that goes through shared memory", group_.world_rank(peer)));
}

Status CellOperation::on_data(int peer, const wire::FrameHeader& header, const ReceivedFrame& frame) {
  if ((header.phase & kEagerFlag) != 0) frame_sender_.note_eager_consumed(frame.peer, header.payload_bytes);
  frame_sender_.transport().release(frame);
  return unexpected(peer);
}

Status CellOperation::on_grant(int peer, const wire::FrameHeader&) { return unexpected(peer); }

Status CellOperation::on_request(int peer, const wire::FrameHeader&) { return unexpected(peer); }

bool CellOperation::lacks(int member) const {
  return member != group_.rank && !board_.read(group_.id, group_.world_rank(member), board_sequence_ + round_);
}

Waiting CellOperation::waiting() const {
  Waiting result;
  const std::uint64_t part_bytes = input_elements(call(), group_.world(), call().root) * math_.element_size();
  result.expected_bytes = part_bytes * group_.ranks.size();
  result.received_bytes = part_bytes * parts_.size();
  for (int member = 0; member < group_.world(); ++member) {
    if (lacks(member)) result.peers.push_back(member);
  }
  return result;
}

}  // namespace qccl::engine
