// Frames between ranks of one host through shared memory (layout.h), with the board.
//
// A sender writes a slot in place, then a ring word. Only a receiver that holds too many frames makes copies
// (frame_queue.h). A peer's death appears as end of file on its socket.
//
// At start-up the ranks set up their memory by messages over a unix socket; file descriptors travel with them.
//
//   lower rank                                        higher rank
//   offer    + pair memory, its doorbell, area, heap ->
//                                                   <-  answer + its doorbell, area, heap
//   accepted                                        ->
//
// Either rank may send `refused` instead of its next message; both then do without shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "os/memory.h"
#include "os/net/poller.h"
#include "transport/endpoint.h"
#include "transport/shm/layout.h"

namespace qccl {
namespace shm {

enum class LinkMessageKind : std::uint32_t { offer = 1, answer = 2, accepted = 3, refused = 4 };

inline constexpr std::uint64_t kLinkMagic = 0x314D48534C434351;  // "QCCLSHM1"

// The bytes of a message. Those of a peer are used only after check().
struct LinkMessage {
  std::uint64_t magic = kLinkMagic;
  std::uint32_t layout = kLayoutVersion;
  LinkMessageKind kind = LinkMessageKind::offer;
  std::int32_t rank = 0;  // of the sender
  std::int32_t target = 0;
  std::uint32_t large_slots = 0;  // of a frame queue, 4 to 16
  std::uint32_t reason = 0;       // refused: an ErrorKind; otherwise 0
  std::uint64_t pair_bytes = 0;   // as the layout has it for large_slots
  std::uint64_t area_bytes = sizeof(Area);
  std::uint64_t heap_bytes = 0;  // of the sender's heap, whole pages; 0 where it has none
  std::uint64_t zero = 0;
};
static_assert(sizeof(LinkMessage) == 64 && offsetof(LinkMessage, kind) == 12 && offsetof(LinkMessage, reason) == 28);
static_assert(offsetof(LinkMessage, pair_bytes) == 32 && offsetof(LinkMessage, heap_bytes) == 48);

// CorruptData if this is no such message; Unsupported if the peer was built with another layout.
Status check(const LinkMessage& message);

}  // namespace shm

// The memory that a rank shares with every other rank of its host: a doorbell, an area of 1 MiB (layout.h) and an empty
// heap. make_shm_link() passes it to a peer; then make_shm_endpoint() takes it.
struct ShmExports {
  int rank = -1;
  std::uint32_t large_slots = 0;  // per direction and peer, each 260 KiB
  os::Fd doorbell;                // eventfd
  os::Fd area_fd;
  std::shared_ptr<os::Mapping> area;
  std::shared_ptr<os::SharedHeapFile> heap;
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

struct ShmOptions {
  int world = 1;
  bool shares_cores = false;  // there are more ranks on the machine than cores
};

// An endpoint to the peers of `links`, which were made with `exports`. It has a board if these are all other ranks of
// the world. Fails if a descriptor cannot be watched.
Result<std::unique_ptr<Endpoint>> make_shm_endpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports,
                                                    std::vector<ShmLink> links);

}  // namespace qccl
