#include "os/net/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <ranges>

#include "os/error.h"
#include "os/fd.h"

namespace qccl::os {
namespace {

// Any port will do: connecting a datagram socket only asks the routing table.
constexpr const char* kAnyPort = "9";

std::string numeric(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

bool take_prefix(std::string_view& text, char mark) {
  if (text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  return true;
}

bool any_listed(std::string_view list, std::string_view name, bool exact) {
  return std::ranges::any_of(std::views::split(list, ','), [&](const auto& part) {
    const std::string_view item(part.begin(), part.end());
    return !item.empty() && (exact ? name == item : name.starts_with(item));
  });
}

Interface describe_interface(const ifaddrs& entry) {
  const bool ipv6 = entry.ifa_addr->sa_family == AF_INET6;
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return {.name = entry.ifa_name,
          .address = numeric(entry.ifa_addr, ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)),
          .ipv6 = ipv6,
          .loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0,
          .link_local = ipv6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)};
}

Result<std::string> source_address(const addrinfo& target) {
  const Fd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  if (!fd.valid() || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return os_failure("no route to " + numeric(target.ai_addr, target.ai_addrlen), errno);
  }
  return numeric(reinterpret_cast<const sockaddr*>(&own), bytes);
}

}  // namespace

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

Result<std::string> local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), kAnyPort, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (status != 0) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("can't find an address for \"{}\": {}", host, ::gai_strerror(status)));
  }
  Result<std::string> last = Failure(ErrorKind::peer_lost, "no route to " + host);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    last = source_address(*entry);
    if (last) return last;
  }
  return last;
}

}  // namespace qccl::os
