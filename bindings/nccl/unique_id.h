// NCCL's unique id: where the ranks of a communicator meet, and the key that tells its meeting from others.
//
// | bytes | content                                                                  |
// |-------|--------------------------------------------------------------------------|
// | 8     | "QCCL-id1"                                                               |
// | 16    | random                                                                   |
// | 104   | addresses of a StoreServer of the process that made the id, ended by a 0 |
#pragma once

#include <stop_token>
#include <string>

#include "process.h"

namespace qccl::nccl {

struct Meeting {
  std::string key;      // 32 hexadecimal digits
  std::string address;  // for connect_store()
};

// Makes an id, whose store this process serves until leave_meeting() or its end.
ncclUniqueId make_meeting();
// Throws invalid_argument for bytes that are no id of QCCL's.
Meeting read_meeting(const ncclUniqueId& id);
// Makes the communicator of `world` ranks that all got the id. Throws what init() does, and aborted once it is stopped.
Communicator meet(const Meeting& meeting, int world, int rank, const std::stop_token& stop);

}  // namespace qccl::nccl
