#include "engine/collective/cell_operation.h"

#include <fmt/format.h>

#include <utility>

namespace qccl::engine {

CellOperation::CellOperation(Group& group, std::uint64_t sequence, CallArguments&& arguments, TimePoint posted,
                             FrameSender& frame_sender, ScratchPool& pool, std::uint64_t number, std::uint64_t rounds)
    : Operation(group, sequence, std::move(arguments), posted, frame_sender, pool),
      rounds_(rounds),
      exchange_(group, frame_sender, pool) {
  exchange_.begin(arguments_, number);
}

void CellOperation::restart(std::uint64_t sequence, CallArguments&& arguments, TimePoint posted, std::uint64_t number) {
  Operation::restart(sequence, std::move(arguments), posted);
  exchange_.begin(arguments_, number);
  round_ = 0;
}

void CellOperation::adopt(std::uint64_t sequence, CallArguments&& arguments) {
  Operation::restart(sequence, std::move(arguments), kForever);
  exchange_.rebind(arguments_);
  round_ = 0;
}

Result<bool> CellOperation::advance() {
  if (!exchange_.is_due()) return false;
  const bool publishes = !exchange_.is_published();
  bool complete = false;
  if (publishes) {
    const ConstBytes own = own_part();
    exchange_.publish(own);
    note_sent(own.size());
    complete = exchange_.look_and_ring();
  } else {
    complete = exchange_.collect();
  }
  if (!complete) return publishes;
  if (!combine()) return true;
  exchange_.end();
  ++round_;
  return true;
}

bool CellOperation::combine() {
  exchange_.combine();
  return true;
}

Status CellOperation::unexpected(GroupRank peer) const {
  return Failure(
      ErrorKind::corrupt_data,
      fmt::format("rank {} sent a frame of an operation that goes through shared memory", group_.world_rank(peer)));
}

Status CellOperation::on_data(GroupRank peer, const wire::FrameHeader& header, const ReceivedFrame& frame) {
  if ((header.phase & kEagerFlag) != 0) frame_sender_.note_eager_consumed(frame.peer, header.payload_bytes);
  frame_sender_.transport().release(frame);
  return unexpected(peer);
}

Status CellOperation::on_grant(GroupRank peer, const wire::FrameHeader&) { return unexpected(peer); }

Status CellOperation::on_request(GroupRank peer, const wire::FrameHeader&) { return unexpected(peer); }

Waiting CellOperation::waiting() const {
  Waiting result;
  const std::uint64_t part_bytes = input_elements(call(), group_.world(), call().root) * math().element_size();
  result.expected_bytes = part_bytes * group_.ranks.size();
  result.received_bytes = part_bytes * exchange_.collected();
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (lacks(member)) result.peers.push_back(member);
  }
  return result;
}

}  // namespace qccl::engine
