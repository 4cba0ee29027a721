// How members and newcomers of an open job meet: both sides of Communicator::grow().
#pragma once

#include <functional>
#include <memory>

#include "bootstrap/protocol/formats.h"
#include "group/communicator_state.h"
#include "job/job_start.h"

namespace qccl::internal {

// Outlives every context.
const SteadyClock& steady_clock();

// Begins to listen for the ranks of the grown job.
Result<bootstrap::MeshListener> listen(const comm::Settings& settings);

// Connects this rank with the others that the seat names, until its time is up or `look` fails. `settings` are those of
// this process as it began. Blocks; collective over members and newcomers.
Result<std::shared_ptr<CommunicatorState>> meet(const bootstrap::Seat& seat, comm::Settings settings,
                                                bootstrap::MeshListener listener, std::function<Status()> look,
                                                std::shared_ptr<bootstrap::Door> door);

}  // namespace qccl::internal
