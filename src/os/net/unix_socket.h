// Connections inside a host: unix stream sockets with abstract names, non-blocking and close-on-exec. They can pass
// descriptors (os/net/stream.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// The name is the kernel's, not a file system's: it goes with its owner. It is visible to this network namespace only,
// and to any user in it: call check_same_user(). ResourceExhausted if the name is taken.
Result<Fd> listen_unix_abstract(const std::string& name);
// From now on the listener accepts no connections and counts as ready, which wakes every thread that waits for it.
void stop_listening(const Fd& listener);
// PeerLost if no process listens there; ResourceExhausted if the listener's queue is full now.
Result<Fd> connect_unix_abstract(const std::string& name);

// Names with this prefix that have a listener; none if the system does not tell.
std::vector<std::string> abstract_listeners(const std::string& prefix);

struct PeerCredentials {
  int process = 0;
  std::uint32_t user = 0;
};
// The process at the other end of a unix socket, according to the kernel; and this process.
Result<PeerCredentials> peer_credentials(const Fd& unix_socket);
PeerCredentials own_credentials();

// Whether the peer belongs to this process's user; call it before trusting the first byte. Any user of the host who
// knows an abstract name can connect to it, and can listen on it first. Misuse names both users.
Status check_same_user(const Fd& unix_socket);

// A new descriptor for a socket that other code in this process, or the parent process, owns. Misuse if the number is
// not an open socket.
Result<Fd> duplicate_socket(int descriptor);

// Two connected unix stream sockets.
struct SocketPair {
  Fd first, second;
};
Result<SocketPair> socket_pair();

}  // namespace qccl::os
