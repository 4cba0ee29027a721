// Frames between ranks of one host through shared memory (layout.h), with the board.
//
// A sender writes a slot in place, then a ring word. Only a receiver that holds too many frames makes copies
// (frame_queue.h). A peer's death appears as end of file on its socket.
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
  bool shares_cores = false;  // there are more ranks on the machine than cores
};

// An endpoint to the peers of `links`, which were made with `exports`. It has a board if these are all other ranks of
// the world. Fails if a descriptor cannot be watched.
Result<std::unique_ptr<Endpoint>> make_shm_endpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports,
                                                    std::vector<ShmLink> links);

}  // namespace qccl
