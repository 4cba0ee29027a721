#include "os/net/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "os/error.h"
#include "os/process.h"

namespace qccl::os {
namespace {

constexpr int kBacklog = 1024;
constexpr int kStream = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr Nanoseconds kSilenceBeforeNextAddress = std::chrono::seconds(3);
constexpr Nanoseconds kFirstRetryDelay = std::chrono::milliseconds(5);
constexpr Nanoseconds kLastRetryDelay = std::chrono::milliseconds(250);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* name = host.empty() ? nullptr : host.c_str();
  const int status = ::getaddrinfo(name, std::to_string(port).c_str(), &hints, &found);
  AddressList list(found, &::freeaddrinfo);
  if (status == 0) return list;
  const int error = status == EAI_SYSTEM ? errno : 0;
  Failure failure(ErrorKind::invalid_argument, fmt::format("can't find an address for \"{}\": {}", host,
                                                           error != 0 ? error_text(error) : ::gai_strerror(status)));
  failure.info().os_error = error;
  return failure;
}

// A dual-stack socket if the kernel has IPv6; turning V6ONLY off makes it both.
int open_listener(const addrinfo& address, bool both_families) {
  const int fd = ::socket(address.ai_family, kStream, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int v6_only = both_families ? 0 : 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Connected, or on the way; invalid and errno if it failed at once.
Fd begin_connect(const addrinfo& address) {
  Fd fd(::socket(address.ai_family, kStream, 0));
  if (!fd.valid() || ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno == EINPROGRESS || errno == EINTR) return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

int connect_error(const Fd& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

struct Attempt {
  Fd fd;          // valid: connected
  int error = 0;  // 0: no answer by the deadline
};

Attempt connect_once(const addrinfo& address, TimePoint deadline, const Clock& clock) {
  Fd fd = begin_connect(address);
  if (!fd.valid()) return {Fd(), errno};
  const auto ready = wait_ready(fd, Direction::write, deadline, clock);
  if (!ready.ok()) return {Fd(), ready.error().os_error};
  if (!ready.value()) return {};
  const int error = connect_error(fd);
  return {error == 0 ? std::move(fd) : Fd(), error};
}

Attempt connect_any(const addrinfo* addresses, TimePoint deadline, const Clock& clock) {
  Attempt last;
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    const bool is_last = address->ai_next == nullptr;
    const TimePoint limit = is_last ? deadline : std::min(deadline, clock.now() + kSilenceBeforeNextAddress);
    last = connect_once(*address, limit, clock);
    if (last.fd.valid()) break;
  }
  return last;
}

bool may_come_up(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ETIMEDOUT || error == EHOSTDOWN || error == ECONNABORTED;
}

int poll_milliseconds(Nanoseconds left) {
  constexpr std::int64_t kLongest = 60'000;  // poll() counts in int milliseconds; longer waits go round
  return static_cast<int>(std::clamp<std::int64_t>((left.count() + 999'999) / 1'000'000, 0, kLongest));
}

struct Wait {
  const Fd& socket;
  Direction direction;
  TimePoint deadline;
  const Clock& clock;
};

Status move_exactly(const Wait& wait, std::size_t total, const auto& move_from) {
  for (std::size_t done = 0; done < total;) {
    const IoResult io = move_from(done);
    done += io.bytes;
    if (io.lost()) {
      Failure failure(ErrorKind::peer_lost, describe(io));
      failure.info().os_error = io.error;
      return failure;
    }
    if (!io.would_block) continue;
    QCCL_ASSIGN(const bool is_ready, wait_ready(wait.socket, wait.direction, wait.deadline, wait.clock));
    if (!is_ready) {
      return Failure(ErrorKind::deadline_exceeded,
                     fmt::format("{} of {} bytes {} before the deadline", done, total,
                                 wait.direction == Direction::read ? "received" : "sent"));
    }
  }
  return {};
}

}  // namespace

std::string address_text(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<Fd> listen_tcp(const std::string& address, std::uint16_t port) {
  QCCL_ASSIGN(const auto found, resolve(address, port, AI_PASSIVE | (address.empty() ? 0 : AI_NUMERICHOST)));
  int error = EADDRNOTAVAIL;
  // For "every interface", tries IPv6 first, because its socket accepts both families.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family != family) continue;
      Fd fd(open_listener(*entry, address.empty()));
      if (fd.valid()) return fd;
      error = errno;
    }
  }
  return os_failure("can't listen on " + address_text(address.empty() ? "*" : address, port), error);
}

Result<Fd> reserve_tcp_port() {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool held = socket.valid() && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                    ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (!held) return os_failure("can't reserve a port", errno);
  return socket;
}

Result<std::uint16_t> local_port(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return os_failure("can't tell a socket's port", errno);
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string peer_address(const Fd& socket) {
  sockaddr_storage address{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  char text[NI_MAXHOST];
  const bool is_known = ::getpeername(socket.get(), generic, &bytes) == 0 &&
                        ::getnameinfo(generic, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
  return is_known ? text : "";
}

Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock,
                       IfRefused if_refused) {
  const std::string what = "can't connect to " + address_text(host, port);
  QCCL_ASSIGN(const auto found, resolve(host.empty() ? "localhost" : host, port, 0));
  std::string last_reason = "no answer";
  for (Nanoseconds delay = kFirstRetryDelay;; delay = std::min(2 * delay, kLastRetryDelay)) {
    Attempt attempt = connect_any(found.get(), deadline, clock);
    if (attempt.fd.valid()) {
      QCCL_TRY(set_no_delay(attempt.fd));
      return std::move(attempt.fd);
    }
    const bool again = if_refused == IfRefused::retry && may_come_up(attempt.error);
    if (attempt.error != 0 && !again) return os_failure(what, attempt.error);
    if (attempt.error != 0) last_reason = error_text(attempt.error);
    const Nanoseconds left = deadline - clock.now();
    if (left <= Nanoseconds::zero()) {
      return Failure(ErrorKind::deadline_exceeded, what + " in time: " + last_reason);
    }
    pause(std::min(delay, left));
  }
}

Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port) {
  QCCL_ASSIGN(const auto found, resolve(address, port, AI_NUMERICHOST));
  Fd fd = begin_connect(*found);
  if (!fd.valid()) return os_failure("can't connect to " + address_text(address, port), errno);
  return fd;
}

Status end_connect_tcp(const Fd& socket) {
  const int error = connect_error(socket);
  return error == 0 ? set_no_delay(socket) : os_failure("can't connect", error);
}

Result<std::optional<Fd>> accept_connection(const Fd& listener) {
  Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) return std::optional<Fd>(std::move(fd));
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:  // the peer has gone again; over a network the errors below mean the same (accept(2))
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH: return std::optional<Fd>();
    default: return os_failure("can't accept a connection", errno);
  }
}

Status set_no_delay(const Fd& socket) {
  const int on = 1;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 || errno == EOPNOTSUPP) return {};
  return os_failure("can't set TCP_NODELAY", errno);
}

void set_loopback_congestion_control(const Fd& socket) {
  static constexpr char kReno[] = "reno";  // in every kernel, permitted to every user
  static_cast<void>(::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof(kReno) - 1));
}

Result<bool> wait_ready(const Fd& socket, Direction direction, TimePoint deadline, const Clock& clock) {
  pollfd entry{.fd = socket.get(), .events = direction == Direction::read ? POLLIN : POLLOUT, .revents = 0};
  for (;;) {
    const Nanoseconds left = std::max(deadline - clock.now(), Nanoseconds::zero());
    const int count = ::poll(&entry, 1, poll_milliseconds(left));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return os_failure("can't wait for a socket", errno);
    if (left == Nanoseconds::zero()) return false;
  }
}

Status read_exactly(const Fd& socket, Bytes target, TimePoint deadline, const Clock& clock) {
  return move_exactly({socket, Direction::read, deadline, clock}, target.size(),
                      [&](std::size_t done) { return read_some(socket.get(), target.subspan(done)); });
}

Status write_exactly(const Fd& socket, ConstBytes source, TimePoint deadline, const Clock& clock) {
  return move_exactly({socket, Direction::write, deadline, clock}, source.size(),
                      [&](std::size_t done) { return write_some(socket.get(), source.subspan(done)); });
}

}  // namespace qccl::os
