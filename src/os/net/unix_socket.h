// Connections inside a host: unix stream sockets with abstract names. They can pass descriptors
// (os/net/stream.h). Non-blocking and close-on-exec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// Stream sockets named in the kernel, not in a file system: gone with their owner. Visible to
// this network namespace only, and to any user in it: check peer_credentials().
// ResourceExhausted if the name is taken.
Result<Fd> listen_unix_abstract(const std::string& name);
// From now on the listener takes nobody and counts as ready, which wakes whoever waits for it.
void stop_listening(const Fd& listener);
// PeerLost if nobody listens there; ResourceExhausted if the listener's queue is full now.
Result<Fd> connect_unix_abstract(const std::string& name);

// Names that begin so and on which somebody listens; none where the system does not tell.
std::vector<std::string> abstract_listeners(const std::string& prefix);

struct PeerCredentials {
  int process = 0;
  std::uint32_t user = 0;
};
// Who is at the other end of a unix socket, by the kernel's word; and this process.
Result<PeerCredentials> peer_credentials(const Fd& unix_socket);
PeerCredentials own_credentials();

// Whether the other end belongs to this process's user: asked before the first byte counts. Any user of the host who
// knows an abstract name can connect to it, and can listen there first. Misuse names both users.
Status check_same_user(const Fd& unix_socket);

// A descriptor of its own for a socket that somebody else in this process, or its parent, owns.
// Misuse if the number is not an open socket.
Result<Fd> duplicate_socket(int descriptor);

// Two connected unix stream sockets.
struct SocketPair {
  Fd first, second;
};
Result<SocketPair> socket_pair();

}  // namespace qccl::os
