// How members and newcomers of an open job meet: both sides of Communicator::grow().
#pragma once

#include <memory>
#include <string>

#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/tcp_store_server.h"
#include "group/communicator_state.h"

namespace qccl::internal {

// The store in which a grown job meets, served by rank 0 of the group that grows. Until the object ends.
struct MeetingPlace {
  std::unique_ptr<bootstrap::TcpStoreServer> server;
  std::vector<std::string> addresses;

  // For a world of `world` ranks with a name that nothing else has.
  static Result<MeetingPlace> open(const std::string& job, int world, const comm::Context& context);
  ~MeetingPlace();
  MeetingPlace() = default;
  MeetingPlace(MeetingPlace&&) = default;
  MeetingPlace& operator=(MeetingPlace&&) = default;
};

// Outlives every context.
const SteadyClock& steady_clock();

// Ends the meeting for all its ranks, with the reason.
Status end_meeting(const bootstrap::Seat& seat, const comm::Settings& settings, const std::string& reason);

// Meets in the place that the seat names, until its time is up. `place`: rank 0's; `settings` are those of this process
// as it began. Blocks; collective over members and newcomers.
Result<std::shared_ptr<CommunicatorState>> meet(const bootstrap::Seat& seat, comm::Settings settings,
                                                std::shared_ptr<bootstrap::Door> door, MeetingPlace* place);

}  // namespace qccl::internal
