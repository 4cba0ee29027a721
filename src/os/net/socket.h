// Makes TCP connections over IPv4 and IPv6, and waits for sockets. os/net/unix_socket.h handles unix sockets;
// os/net/stream.h sends and receives over either.
//
// Every descriptor returned here is non-blocking and close-on-exec. Failures carry the address and the system's error
// text. The only calls that block are connect_tcp() (until its deadline, and while the system resolves a name, which
// has its own timeout) and wait_ready().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "os/net/stream.h"
#include "os/net/unix_socket.h"

namespace qccl::os {

// "10.0.0.1:29500", "[fd00::1]:29500", for messages.
std::string address_text(const std::string& host, std::uint16_t port);

// Listens on a numeric IPv4 or IPv6 address; empty means every interface, in both families if the machine has both.
// Port 0 lets the system choose: see local_port(). InvalidArgument if the text is no address; ResourceExhausted if the
// port is taken.
Result<Fd> listen_tcp(const std::string& address, std::uint16_t port);

// Holds a free port without listening on it. Until the socket is closed, Linux gives the port to no process that asks
// for any port, only to listeners that name it and set SO_REUSEADDR, as servers do.
Result<Fd> reserve_tcp_port();

Result<std::uint16_t> local_port(const Fd& socket);
// Numeric address of the peer, "" if it is gone.
std::string peer_address(const Fd& socket);

enum class IfRefused { give_up, retry };

// Connects to a name or a numeric address, trying each of its addresses. With retry, a refused or unreachable address
// is retried until the deadline: its owner may not be up yet. PeerLost: refused or unreachable. DeadlineExceeded: no
// answer in time (with retry: no connection; the message has the last reason). InvalidArgument: the name does not
// resolve.
Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock,
                       IfRefused if_refused = IfRefused::give_up);

// Begins to connect to a numeric IPv4 or IPv6 address, without blocking. InvalidArgument for anything else; other
// failures show at once or only later.
Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port);
// The result, once that socket is writable: connected, or PeerLost (refused, unreachable, ...). Sets TCP_NODELAY, as
// connect_tcp() does.
Status end_connect_tcp(const Fd& socket);

// The next connection waiting at a listener; empty if there is none.
Result<std::optional<Fd>> accept_connection(const Fd& listener);

// Small frames leave at once (TCP_NODELAY). Does nothing for other stream sockets.
Status set_no_delay(const Fd& socket);
// For a connection inside this host: selects the simplest congestion control, because there is no network to control
// and pacing ones (bbr) cost a timer a burst. Best effort.
void set_loopback_congestion_control(const Fd& socket);

// Waits until `socket` can be read (or written), or is closed. False when the deadline passes.
enum class Direction { read, write };
Result<bool> wait_ready(const Fd& socket, Direction direction, TimePoint deadline, const Clock& clock);

// Blocking forms of read_some and write_some for handshakes: all bytes, or a failure by the deadline. PeerLost at the
// end of file.
Status read_exactly(const Fd& socket, Bytes target, TimePoint deadline, const Clock& clock);
Status write_exactly(const Fd& socket, ConstBytes source, TimePoint deadline, const Clock& clock);

}  // namespace qccl::os
