#include "engine/collective/cell_operation.h"

#include <fmt/format.h>

#include <utility>

namespace qccl::engine {

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
  result.received_bytes = part_bytes * exchange_.meeting().parts().size();
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (lacks(member)) result.peers.push_back(member);
  }
  return result;
}

}  // namespace qccl::engine
