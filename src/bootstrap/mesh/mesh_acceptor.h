// The listening side of the mesh: takes connections from anyone, keeps those of higher ranks of
// this job.
//
// Handshakes of all that have connected go on together; a stranger costs one descriptor until he
// says something wrong, his time is up, or so many have come after him that he is the oldest. Who
// comes to the unix socket as another user goes before he has said anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/mesh/mesh_links.h"
#include "os/net/poller.h"

namespace qccl::bootstrap {

class MeshAcceptor {
 public:
  // At most, and at most a quarter of the descriptors that the process could still open at start().
  static constexpr std::size_t kMaxPending = 512;
  static constexpr Nanoseconds kHandshakeLimit = std::chrono::seconds(10);

  // Both outlive this.
  MeshAcceptor(os::Poller& poller, const Clock& clock) : poller_(poller), clock_(clock) {}

  // From here on connections queue up; they are answered once accept_for() has been called.
  // Returns the port.
  Result<std::uint16_t> listen_tcp(const std::string& address);
  // Returns the name, a random one.
  Result<std::string> listen_local();
  // `own` is what this rank says of itself; its target is filled in.
  Status start(const wire::Hello& own);

  // Something happened at the descriptor with this index. ResourceExhausted if no connection can
  // be accepted for want of descriptors.
  Status ready(std::uint64_t index);
  // Drops those whose time is up.
  void expire();
  // Connections whose handshake is complete.
  std::vector<Link> take_links();

 private:
  struct Pending {
    os::Fd socket;
    LinkKind kind = LinkKind::tcp;
    TimePoint deadline;
    HelloReader hello;
    int rank = -1;  // known once the Hello was accepted
  };
  enum class Progress : std::uint8_t { waits, dropped, complete };

  Status accept_waiting(const os::Fd& listener, LinkKind kind);
  void welcome(os::Fd socket, LinkKind kind);
  bool is_of_this_user(const os::Fd& socket);
  void serve(std::uint64_t id);
  Progress advance(Pending& pending);
  bool answer_hello(Pending& pending);
  Progress read_confirmation(Pending& pending);

  os::Poller& poller_;
  const Clock& clock_;
  os::Fd tcp_listener_;
  os::Fd local_listener_;
  wire::Hello own_;
  std::map<std::uint64_t, Pending> pending_;  // ids grow, so the first is the oldest
  std::uint64_t next_id_;
  std::size_t max_pending_ = kMaxPending;
  bool warned_of_user_ = false;
  std::vector<Link> links_;
};

}  // namespace qccl::bootstrap
