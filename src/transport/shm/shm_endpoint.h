// Frames between ranks of one host through shared memory (layout.h), with the board.
//
// Sending writes a slot in place and a ring word behind it; nothing is copied but by a receiver
// that holds too much (lane_receiver.h). A peer's death shows as the end of file of its socket.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "os/net/poller.h"
#include "transport/endpoint.h"
#include "transport/shm/shm_link.h"

namespace qccl {

struct ShmOptions {
  int world = 1;
  bool shares_cores = false;  // the machine's ranks are more than its cores
};

// An endpoint to the peers of `links`, which were made with `home`. It has a board if they are
// all the other ranks of the world. Fails if a descriptor can't be watched.
Result<std::unique_ptr<Endpoint>> make_shm_endpoint(os::Poller& poller, const ShmOptions& options, ShmHome home,
                                                    std::vector<ShmLink> links);

}  // namespace qccl
