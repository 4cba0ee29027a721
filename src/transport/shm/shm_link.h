// Sets up the shared memory between ranks of one host, at start-up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "os/memory.h"

namespace qccl {

// The memory that a rank shares with every other rank of its host: a doorbell, an area of 1 MiB (layout.h) and an empty
// heap. make_shm_link() passes it to a peer; then make_shm_endpoint() takes it.
struct ShmExports {
  int rank = -1;
  std::uint32_t large_slots = 0;  // per direction and peer, each 260 KiB
  os::Fd doorbell;                // eventfd
  os::Fd area_fd;
  std::shared_ptr<os::Mapping> area;
  std::shared_ptr<os::SharedHeapFile> heap;  // shm_heap.h
  // Why this rank has none of these, if so: every link is then refused for that reason.
  std::optional<ErrorInfo> unsupported_reason;
};

// `local_ranks` is the number of ranks on the host, the same on all of them. The more ranks, the fewer slots each pair
// gets (16 up to 8 ranks, at least 4), so that a host of 64 ranks shares 5 GiB and not 17. If the system refuses memory
// or descriptors, the result carries an unsupported_reason.
ShmExports create_shm_exports(int rank, int local_ranks);

// Shared memory with one peer, ready for use.
struct ShmLink {
  int peer = -1;
  std::uint32_t large_slots = 0;
  os::Fd socket;    // its end of file means that the peer is gone
  os::Fd doorbell;  // the peer's
  std::shared_ptr<os::Mapping> pair;
  std::shared_ptr<os::Mapping> area;         // the peer's
  std::shared_ptr<os::SharedHeapFile> heap;  // the peer's
};

// Exchanges memory and doorbells with `peer` over a connected unix socket on which the peer has been identified and
// which carries nothing else from now on. The lower rank makes the memory. Blocks until `deadline`. A rank that calls
// this for several peers in turn takes the pairs in the same order as every other rank, for example by ascending peer.
//
// If one side fails, both fail with the same kind, and they use TCP instead. CorruptData: the peer sent something else.
// Unsupported: it was built with another layout. ResourceExhausted: the system refuses the pair's memory (8.6 MiB with
// 16 large slots). PeerLost, DeadlineExceeded: no answer.
Result<ShmLink> make_shm_link(os::Fd unix_socket, const ShmExports& exports, int peer, TimePoint deadline,
                              const Clock& clock);

}  // namespace qccl
