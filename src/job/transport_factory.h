// Makes one Transport of connected sockets: shared memory where it can be set up, TCP elsewhere, paced on request. The
// only code that names the real transports.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/mesh/full_mesh.h"
#include "transport/transport.h"

namespace qccl::comm {

struct TransportOptions {
  int rank = 0;
  int world = 1;
  bool shares_cores = false;               // the machine has more ranks than cores
  std::optional<std::string> link_rate{};  // "1gbit": see transport/pacing.h
  std::string congestion = "system";       // QCCL_CONGESTION
  bool uses_all_connections = false;       // to a distant rank, because QCCL_CONNECTIONS says how many
  TimePoint deadline = kForever;           // of setting up shared memory
};

// Blocks until the ranks of this host have exchanged their memory. Two ranks that cannot share memory use TCP between
// them; without a TCP connection (QCCL_TRANSPORT=shm) that is an error.
Result<std::unique_ptr<Transport>> make_transport(bootstrap::PeerSockets links, const TransportOptions& options,
                                                  const Clock& clock);

}  // namespace qccl::comm
