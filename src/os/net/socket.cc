#include "os/net/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/text.h"
#include "os/net/addresses.h"
#include "os/process.h"

namespace qccl::os {
namespace {

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

int poll_milliseconds(Nanoseconds left) {
  constexpr std::int64_t kLongest = 60'000;  // poll() counts in int milliseconds; longer waits go round
  return static_cast<int>(std::clamp<std::int64_t>((left.count() + 999'999) / 1'000'000, 0, kLongest));
}

bool take_prefix(std::string_view& text, char mark) {
  if (text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  return true;
}

bool any_listed(std::string_view list, std::string_view name, bool exact) {
  return std::ranges::any_of(split(list, ','), [&](std::string_view item) {
    return !item.empty() && (exact ? name == item : name.starts_with(item));
  });
}

Interface describe_interface(const ifaddrs& entry) {
  const bool ipv6 = entry.ifa_addr->sa_family == AF_INET6;
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return {.name = entry.ifa_name,
          .address = numeric_text(entry.ifa_addr, ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)),
          .ipv6 = ipv6,
          .loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0,
          .link_local = ipv6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)};
}

}  // namespace

std::string address_text(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<Fd> listen_tcp(const std::string& address, std::uint16_t port) {
  QCCL_ASSIGN(const auto found, address.empty() ? any_address(port) : numeric_address(address, port));
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
  address.sin_addr.s_addr = htonl(INADDR_ANY);
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
  return ::getpeername(socket.get(), generic, &bytes) == 0 ? numeric_text(generic, bytes) : "";
}

std::string network_of(const std::string& address) {
  in6_addr bits{};
  if (::inet_pton(AF_INET6, address.c_str(), &bits) != 1) return address;
  if (IN6_IS_ADDR_V4MAPPED(&bits) || IN6_IS_ADDR_LINKLOCAL(&bits)) return address;
  std::fill(std::begin(bits.s6_addr) + 8, std::end(bits.s6_addr), std::uint8_t{0});
  char text[INET6_ADDRSTRLEN];
  return std::string(::inet_ntop(AF_INET6, &bits, text, sizeof(text))) + "/64";
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

bool set_congestion_control(const Fd& socket, const std::string& name) {
  const auto size = static_cast<socklen_t>(name.size());
  return ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), size) == 0;
}

Result<bool> wait_ready(const Fd& socket, Direction direction, TimePoint deadline, const Clock& clock) {
  pollfd entry{
      .fd = socket.get(), .events = static_cast<short>(direction == Direction::read ? POLLIN : POLLOUT), .revents = 0};
  for (;;) {
    const Nanoseconds left = std::max(deadline - clock.now(), Nanoseconds::zero());
    const int count = ::poll(&entry, 1, poll_milliseconds(left));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return os_failure("can't wait for a socket", errno);
    if (left == Nanoseconds::zero()) return false;
  }
}

Status move_exactly(const Wait& wait, std::size_t total, const std::function<IoResult(std::size_t)>& move_from) {
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

Status read_exactly(const Fd& socket, Bytes target, TimePoint deadline, const Clock& clock) {
  return move_exactly({socket, Direction::read, deadline, clock}, target.size(),
                      [&](std::size_t done) { return read_some(socket.get(), target.subspan(done)); });
}

Status write_exactly(const Fd& socket, ConstBytes source, TimePoint deadline, const Clock& clock) {
  return move_exactly({socket, Direction::write, deadline, clock}, source.size(),
                      [&](std::size_t done) { return write_some(socket.get(), source.subspan(done)); });
}

bool interface_matches(std::string_view filter, std::string_view name) {
  if (filter.empty()) return true;
  const bool exclude = take_prefix(filter, '^');
  const bool exact = take_prefix(filter, '=');
  return any_listed(filter, name, exact) != exclude;
}

Result<std::vector<Interface>> list_interfaces(std::string_view filter) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return os_failure("can't list network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (interface_matches(filter, entry->ifa_name)) found.push_back(describe_interface(*entry));
  }
  std::stable_partition(found.begin(), found.end(), [](const Interface& entry) { return !entry.ipv6; });
  return found;
}

}  // namespace qccl::os
