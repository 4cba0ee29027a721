// Connects every rank of a job with every other rank, at start-up.
//
// Each rank listens on TCP and on an abstract unix socket, gives the others a card that names both, then dials all
// lower ranks and accepts all higher ones (handshake.h). Two ranks of a host get a unix socket, over which they set up
// shared memory, and a TCP connection beside it in case that fails. Ranks exchange their cards through a store
// (meeting/card_exchange.h), or as their job grows through the group that grows and its doors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/mesh/connection_count.h"
#include "os/fd.h"
#include "qccl/store.h"
#include "qccl/types.h"
#include "secure/stream.h"

namespace qccl::bootstrap {

struct FullMeshOptions {
  LaunchIdentity launch;
  // automatic: unix sockets and TCP. shm: unix sockets only. tcp: TCP only. The same on all ranks.
  TransportChoice transport = TransportChoice::automatic;
  std::string host_suffix{};       // QCCL_HOSTS: separates ranks of one host as if they were on several
  std::string location{};          // where the store is, for messages: "at 10.0.0.1:29500"
  ConnectionPolicy connections{};  // its remote_peers is filled in
  secure::Protection protection{};
  TimePoint deadline = kForever;
  Nanoseconds timeout{};  // from which the deadline was computed, for messages
};

// All handshakes are done, nothing has been read beyond them; non-blocking. By rank; this rank's own entry is invalid.
struct PeerSockets {
  std::vector<std::vector<secure::Stream>>
      tcp{};                             // to all peers, in one order at both ends; none if the transport is shm
  std::vector<os::Fd> local{};           // unix sockets: peers that share this host's memory, unless it is tcp
  std::vector<bool> on_this_host{};      // ranks of this boot of this host, including this one
  int local_ranks = 1;                   // their number; the same on all of them
  int machine_ranks = 1;                 // of this machine, including other containers: they share its cores
  int machine_cores = 1;                 // lower bound: ranks may be bound to different cores
  std::vector<int> hosts{};              // each rank's host, as the first rank on it; the same on all ranks
  std::vector<std::string> processes{};  // "process 123 on node0"
  std::uint64_t job = 0;                 // digest of name, restart, generation and a nonce; same on all
};

// Of `options.launch` only the addresses count. Fails as choose_addresses() does.
Result<MeshListener> listen_for_mesh(const FullMeshOptions& options, const Clock& clock);

// Blocks in this thread until all ranks are connected. Listens to nothing afterwards. `look` is called now and then;
// its failure ends the attempt. DeadlineExceeded names the ranks that could not be reached; PeerLost names one that
// ended meanwhile; Misuse, InvalidArgument, Unsupported: settings that differ.
Result<PeerSockets> connect_full_mesh(MeshListener listener, GatheredCards gathered, const FullMeshOptions& options,
                                      const std::function<Status()>& look, const Clock& clock);

// All of it, with cards exchanged through the store (null in a world of 1), which is not needed any more once all ranks
// have returned. Fails as gather_cards() too.
Result<PeerSockets> connect_full_mesh(Store* store, const FullMeshOptions& options, const Clock& clock);

}  // namespace qccl::bootstrap
