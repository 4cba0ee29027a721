// Moves bytes and descriptors over non-blocking stream sockets. No call here blocks, allocates (except
// recv_descriptors, for what it received) or raises SIGPIPE.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "os/fd.h"

namespace qccl::os {

// The result of one read or write. At most one of would_block, closed and error is set.
struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing moved: retry when the socket is ready
  bool closed = false;       // read: end of file
  int error = 0;             // reset, broken pipe, ...: error_text(error), or describe()

  bool ok() const { return bytes != 0; }
  bool lost() const { return closed || error != 0; }
};

// "closed the connection (end of file)", "connection reset (errno 104)": for a lost() result.
std::string describe(const IoResult& result);

// Reads the available bytes, at most target.size() (not 0).
IoResult read_some(int fd, Bytes target);
// The same into two places, the first filled first.
IoResult read_some(int fd, Bytes first, Bytes second);

IoResult write_some(int fd, ConstBytes source);
inline constexpr std::size_t kMaxWritePieces = 64;
// The same from up to kMaxWritePieces places in one call.
IoResult write_some(int fd, std::span<const ConstBytes> pieces);

// Sends `source` (at least 1 byte) with descriptors (at most kMaxDescriptors), which travel with the first byte, over a
// unix socket.
inline constexpr std::size_t kMaxDescriptors = 16;
IoResult send_descriptors(int fd, ConstBytes source, std::span<const int> descriptors);

// Reads like read_some and appends the received descriptors to `descriptors`.
IoResult recv_descriptors(int fd, Bytes target, std::vector<Fd>& descriptors);

// Call these before closing, in this order. A connection that is closed with unread bytes, or that receives bytes after
// it was closed, is reset, which discards whatever the peer's machine has not acknowledged.

// Tells the peer that nothing more comes.
void end_sending(int fd);
// Discards what the peer has sent (into `scratch`), then returns how many of our bytes its machine has yet to
// acknowledge, the end of file counting as one; 0 if the peer has closed or this is no TCP connection.
std::size_t unacknowledged_bytes(int fd, Bytes scratch);

// True if the peer has closed or reset the connection; reads nothing.
bool peer_closed(int fd);

}  // namespace qccl::os
