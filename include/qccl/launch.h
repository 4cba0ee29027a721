// This process's rank and world, for programs that bring their own communication and for torch.distributed's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "qccl/communicator.h"

namespace qccl {

// What find_launch() returns.
struct Launch {
  int rank = 0;                   // this process's, from 0
  int world = 1;                  // number of ranks
  int local_rank = -1;            // -1: unknown
  int local_world = 0;            // ranks on this host; 0: unknown
  std::string source;             // where rank and world came from, for people: "Open MPI (mpirun)"
  std::string master_address;     // of rank 0's host, reachable from all ranks
  std::uint16_t master_port = 0;  // of rank 0's host
  // On rank 0, if it chose the port: reserves the port until a server with SO_REUSEADDR listens on it.
  std::shared_ptr<void> held_port;
};

// The same rank and world that init(options) would take: from the options, from a launcher's variables, or the single
// process of a world of 1. If MASTER_ADDR and MASTER_PORT are given, by options or environment, it contacts no peer.
// Otherwise, in a world of several, it is collective over all ranks, within options.init_timeout: they meet as for
// init(), and rank 0 sends the others an address and a free port of its host (`port`, if that is not 0). It joins no
// job and leaves no connection open. Throws Error as init() does for variables that are wrong or contradict each other,
// and for missing ranks.
Launch find_launch(const InitOptions& options = {}, std::uint16_t port = 0);

}  // namespace qccl
