// Connects every rank of a job with every other, at start-up.
//
// Each rank listens on TCP and on an abstract unix socket, says so in the store (bootstrap/
// assembly.h), then dials all lower ranks and accepts all higher ones; bootstrap/mesh/mesh_links.h has the
// handshake. Two ranks of a host get a unix socket, over which they set up shared memory, and a
// TCP connection beside it in case that fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/environment.h"
#include "os/fd.h"
#include "qccl/store.h"
#include "qccl/types.h"

namespace qccl::bootstrap {

struct MeshOptions {
  Membership membership;
  // automatic: unix sockets and TCP. shm: unix sockets alone. tcp: TCP alone. Same on all ranks.
  TransportChoice transport = TransportChoice::automatic;
  std::string host_suffix{};  // QCCL_HOSTS: tells ranks of one host apart as if on several
  std::string place{};        // where the store is, for messages: "at 10.0.0.1:29500"
  TimePoint deadline = kForever;
  Nanoseconds timeout{};  // what the deadline was made of, for messages
};

// Handshake done on all, nothing read beyond it, non-blocking. By rank, this one's own invalid.
struct MeshLinks {
  std::vector<os::Fd> tcp;         // all peers, unless the transport is shm
  std::vector<os::Fd> local;       // unix sockets: peers that share this host's memory, unless it is tcp
  std::vector<bool> on_this_host;  // ranks of this boot of this host, this one too
  int local_ranks = 1;             // how many; the same on all of them
  int machine_ranks = 1;           // of this machine, in whatever containers: they share its cores
  int machine_cores = 1;           // that they have at least: ranks may be bound to different ones
  std::vector<int> hosts;          // each rank's host, by the first rank on it; the same on all ranks
  std::vector<std::string> who;    // "process 123 on node0"
  std::uint64_t job = 0;           // digest of name, restart, generation and a nonce; same on all
};

// Blocks in this thread until all ranks are connected. Listens to nothing afterwards. The store
// (null in a world of 1) is not needed any more once all ranks have returned.
// DeadlineExceeded names the ranks that did not come or could not be reached; PeerLost one that
// ended meanwhile; Misuse, InvalidArgument, Unsupported what does not fit together.
Result<MeshLinks> connect_mesh(Store* store, const MeshOptions& options, const Clock& clock);

}  // namespace qccl::bootstrap
