// Frames over TCP (or any stream socket): the transport between hosts.
//
// Sending: a codec encodes into a pooled frame buffer; commit() hands header and payload to the kernel in one call, or
// queues the frame behind waiting ones. Receiving: see frame_stream.h. While the engine spins, a single socket is read
// directly, several through epoll.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "os/net/poller.h"
#include "secure/stream.h"
#include "transport/endpoint.h"

namespace qccl {

struct TcpOptions {
  // Per peer: limit of data waiting for the socket; beyond it reserve() returns nothing...
  std::size_t send_queue_bytes = 4 * kMaxFrameBytes;
  // ...and limit of frames waiting for receive(); beyond it the socket is not read.
  std::size_t receive_queue_bytes = 4 * kMaxFrameBytes;
  // With more peers than this, progress() asks epoll which sockets to read. An idle socket costs
  // 0.30 us to read and 0.35 us among others, asking epoll 0.20 us for any number (tcp_bench).
  int max_directly_read = 1;
  std::uint8_t token_space = kTcpTokenSpace;
  // TCP's congestion control for connections with a round trip of a millisecond or more, if the system has it; empty:
  // the system's own; auto: cubic, and bbr once a line has lost packets without a queue (loss_watch.h). In a host it is
  // reno: there is no network to control, and pacing ones cost a timer a burst.
  std::string distant_congestion_control = "auto";
  // Frames to a distant peer are spread over all of its connections; false: the first carries all that it can.
  bool uses_all_connections = false;
  // By rank: the peer runs on this host, so that its bytes cross no network. Empty: no peer does.
  std::vector<bool> on_this_host{};
};

// `sockets_by_rank[r]` are the connections to world rank r after the handshake, in the same order on both ranks, with
// nothing read beyond it; empty if there is none. Several carry frames side by side, each on the one with the least
// backlog; they arrive in order all the same. The loss of one loses the peer. Fails if a socket cannot be watched.
Result<std::unique_ptr<Endpoint>> make_tcp_endpoint(os::Poller& poller, const TcpOptions& options,
                                                    std::vector<std::vector<secure::Stream>> sockets_by_rank);

}  // namespace qccl
