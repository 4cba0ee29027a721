// The listening side of the mesh: accepts connections from any process, keeps those of higher ranks of this job.
//
// The handshakes of all connections proceed concurrently. A stranger costs one descriptor until it sends something
// wrong, its time is up, or enough others have come after it that it is the oldest. A unix socket connection of another
// user is closed before anything is read from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/mesh/handshake.h"
#include "os/net/poller.h"

namespace qccl::bootstrap {

class Acceptor {
 public:
  // Maximum; also at most a quarter of the descriptors that the process could still open at start().
  static constexpr std::size_t kMaxPending = 512;
  static constexpr Nanoseconds kHandshakeLimit = std::chrono::seconds(10);

  // Both must outlive this.
  Acceptor(os::Poller& poller, const Clock& clock) : poller_(poller), clock_(clock) {}

  // From here on connections queue up; they are answered after start(). Returns the port.
  Result<std::uint16_t> listen_tcp(const std::string& address);
  // Returns the random name of the socket.
  Result<std::string> listen_local();
  // `own` describes this rank; its target is filled in.
  Status start(const wire::Hello& own);

  // The descriptor with this index has an event. ResourceExhausted if a lack of descriptors prevents accepting
  // connections.
  Status ready(std::uint64_t index);
  // Drops connections whose time is up.
  void expire();
  // Connections whose handshake is complete.
  std::vector<PeerSocket> take_peers() { return std::exchange(peers_, {}); }

 private:
  struct Pending {
    Handshake handshake;
    TimePoint deadline;
  };

  Status accept_waiting(const os::Fd& listener, SocketKind kind);
  void welcome(os::Fd socket, SocketKind kind);
  bool is_of_this_user(const os::Fd& socket);
  void serve(std::uint64_t id);

  os::Poller& poller_;
  const Clock& clock_;
  os::Fd tcp_listener_;
  os::Fd local_listener_;
  wire::Hello own_;
  std::map<std::uint64_t, Pending> pending_;  // ids grow, so the first is the oldest
  std::uint64_t next_id_;
  std::size_t max_pending_ = kMaxPending;
  bool warned_of_user_ = false;
  std::vector<PeerSocket> peers_;
};

}  // namespace qccl::bootstrap
