// From connected sockets to one Transport: shared memory where it can be set up, TCP elsewhere,
// paced if asked. The only code that names concrete transports.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/mesh/full_mesh.h"
#include "transport/transport.h"

namespace qccl::comm {

struct LinkOptions {
  int rank = 0;
  int world = 1;
  bool shares_cores = false;  // the machine's ranks are more than its cores
  TransportChoice transport = TransportChoice::automatic;
  std::optional<std::string> link_rate{};  // "1gbit": see transport/pacing.h
  TimePoint deadline = kForever;           // of setting up shared memory
};

// Blocks until the ranks of this host have exchanged their memory. Two ranks that can't share
// memory use TCP between them, unless the transport is shm, where that is an error.
Result<std::unique_ptr<Transport>> make_transport(bootstrap::PeerSockets links, const LinkOptions& options,
                                                  const Clock& clock);

}  // namespace qccl::comm
