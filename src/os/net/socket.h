// Sockets: TCP connections over IPv4 and IPv6, unix sockets inside a host, the bytes and descriptors over either, and
// the addresses of this host.
//
// Every descriptor returned here is non-blocking and close-on-exec. Failures carry the address and the system's error
// text. The only calls that block are connect_tcp() (until its deadline, and while the system resolves a name, which
// has its own timeout), wait_ready(), read_exactly() and write_exactly().
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// ---- TCP

// "10.0.0.1:29500", "[fd00::1]:29500", for messages.
std::string address_text(const std::string& host, std::uint16_t port);
// "fd00::1" for "[fd00::1]", anything else as it is.
std::string without_brackets(const std::string& host);

// Listens on a numeric IPv4 or IPv6 address; empty means every interface, in both families if the machine has both.
// Port 0 lets the system choose: see local_port(). InvalidArgument: no address; ResourceExhausted: the port is taken.
Result<Fd> listen_tcp(const std::string& address, std::uint16_t port);

// Holds a free port of all IPv4 addresses without listening on it. Until the socket is closed, Linux gives the port to
// no process that asks for any port, only to listeners that name it and set SO_REUSEADDR, as servers do.
Result<Fd> reserve_tcp_port();

Result<std::uint16_t> local_port(const Fd& socket);
// Numeric address of the peer, "" if it is gone.
std::string peer_address(const Fd& socket);
// A name for all addresses that one machine may take at will: of IPv6 the first 64 bits. Any other address, also one of
// a link, has only itself.
std::string network_of(const std::string& address);

// Connects to a name or a numeric address (IPv6 also in brackets), trying each of its addresses. Retries until the
// deadline, whatever an address answers, and looks the name up each time: its owner, its address or the route there may
// come later. DeadlineExceeded has the last reasons; ResourceExhausted: this process can open no socket.
Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock);

// The same without retries: PeerLost if the name has no address now, or every address refuses or is unreachable.
Result<Fd> connect_tcp_once(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock);

// Begins to connect to a numeric IPv4 or IPv6 address, without blocking. InvalidArgument for anything else; other
// failures show at once or only later.
Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port);
// The result, once that socket is writable: connected, with TCP_NODELAY, or PeerLost (refused, unreachable, ...).
Status end_connect_tcp(const Fd& socket);

// Whether the host that was to be reached was there and refused: no process listens, or a firewall refuses. False for
// what the network may still change, such as a missing route.
bool was_refused(const ErrorInfo& failure);

// The next connection waiting at a listener; empty if there is none.
Result<std::optional<Fd>> accept_connection(const Fd& listener);

// Small frames leave at once (TCP_NODELAY). Does nothing for other stream sockets.
Status set_no_delay(const Fd& socket);
// Selects TCP's congestion control by the system's name for it, such as "reno" or "bbr". False if the system does not
// have it, or not for this user.
bool set_congestion_control(const Fd& socket, const std::string& name);

// Waits until `socket` can be read (or written), or is closed. False when the deadline passes.
enum class Direction { read, write };
Result<bool> wait_ready(const Fd& socket, Direction direction, TimePoint deadline, const Clock& clock);

// Blocking read_some and write_some, for handshakes: all bytes, or a failure by the deadline; PeerLost at end of file.
Status read_exactly(const Fd& socket, Bytes target, TimePoint deadline, const Clock& clock);
Status write_exactly(const Fd& socket, ConstBytes source, TimePoint deadline, const Clock& clock);

// The loop of both: calls `move_from` with the number of bytes that have moved, until they are `total`.
struct Wait {
  const Fd& socket;
  Direction direction;
  TimePoint deadline;
  const Clock& clock;
};
struct IoResult;
Status move_exactly(const Wait& wait, std::size_t total, const std::function<IoResult(std::size_t done)>& move_from);

// ---- unix sockets: abstract names; they can pass descriptors

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
// The same for credentials that are known.
Status check_same_user(const PeerCredentials& peer, const PeerCredentials& own);

// A new descriptor for a socket that other code of this process or its parent owns. Misuse if it is no open socket.
Result<Fd> duplicate_socket(int descriptor);

// Two connected unix stream sockets.
struct SocketPair {
  Fd first, second;
};
Result<SocketPair> socket_pair();

// ---- bytes and descriptors; nothing here raises SIGPIPE, or allocates (except recv_descriptors, for what it received)

// The result of one read or write. At most one of would_block, closed and error is set.
struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing moved: retry when the socket is ready
  bool closed = false;       // read: end of file
  int error = 0;             // reset, broken pipe, ...: error_text(error), or describe()

  bool ok() const { return bytes != 0; }
  bool lost() const { return closed || error != 0; }
  // Lost, because the peer's system closed or reset the connection.
  bool ended_by_peer() const { return closed || error == ECONNRESET || error == EPIPE; }
};

// Results of a layer above the socket: the bytes fail authentication; there is no memory.
IoResult changed_on_the_way();
IoResult out_of_memory();

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

// Sends `source` (at least 1 byte) over a unix socket, with at most kMaxDescriptors that travel with its first byte.
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

// How many bytes the system holds for the peer: unsent or not yet acknowledged. 0 if it does not say.
std::size_t send_backlog(int fd);

// The shortest round trip that the system has measured on a TCP connection in the last minutes; 0 if it has none.
Nanoseconds shortest_round_trip(int fd);

// What the peer's machine has acknowledged on a TCP connection, the packets that were sent again, and whether bytes
// wait that have never left this one.
struct Acknowledged {
  std::uint64_t bytes = 0;
  std::uint64_t resent = 0;
  bool waits = false;
  Nanoseconds busy{};  // while bytes were on their way
};
Acknowledged acknowledged(int fd);

// What a TCP connection has sent and received since its start, and its round trip: now, and the shortest.
struct TcpSample {
  std::uint64_t sent_packets = 0;
  std::uint64_t resent_packets = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t received_packets = 0;
  std::uint64_t early_packets = 0;  // received before one that was sent earlier
  Nanoseconds round_trip{};
  Nanoseconds shortest{};
  Nanoseconds busy{};     // while bytes were on their way
  Nanoseconds limited{};  // of that, by the peer's window or the own buffer
};
TcpSample tcp_sample(int fd);

// How many bytes the peer may have on their way on a TCP connection: the system offers no larger window from now on.
// The system forgets it when it makes the connection's buffer larger. 0: no limit.
void limit_window(int fd, std::uint32_t bytes);

// How large the system lets a connection's buffer be, in bytes. `name`: "tcp_wmem" or "tcp_rmem". Nothing if it does
// not say.
struct BufferSizes {
  std::uint64_t least = 0;
  std::uint64_t initial = 0;
  std::uint64_t largest = 0;
};
std::optional<BufferSizes> tcp_buffer_sizes(const std::string& name);

// True if the peer has closed or reset the connection; reads nothing.
bool peer_closed(int fd);
// The next byte, which stays to be read.
IoResult peek(int fd, std::byte& next);

// ---- the addresses of this host that other hosts should use

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // numeric, IPv4 or IPv6; link-local IPv6 with its scope, "fe80::1%eth0"
  bool ipv6 = false;
  bool loopback = false;
  bool link_local = false;
};

// True if `name` passes a filter in NCCL's forms: "eth,ib" names that begin with one of these, "=eth0,eth1" exactly one
// of these, "^docker" none that begin with this, "^=docker0" none that equal this. An empty filter passes everything.
bool interface_matches(std::string_view filter, std::string_view name);

// Addresses of interfaces that are up and pass the filter: IPv4 before IPv6, otherwise in the system's order.
Result<std::vector<Interface>> list_interfaces(std::string_view filter);

// The address from which this host would send to `host` (name or numeric); sends nothing. PeerLost: the name has no
// address now, or there is no route. With a deadline, retries until then.
Result<std::string> local_address_towards(const std::string& host);
Result<std::string> local_address_towards(const std::string& host, TimePoint deadline, const Clock& clock);

}  // namespace qccl::os
