// Sockets, names and numeric addresses as the system's calls take them. For src/os/net alone.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace qccl::os {

inline constexpr int kStream = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
inline constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The addresses that the name has at this moment: the system is asked each time. An IPv6 address may be in brackets. A
// name with a dot at its end is looked up without it if it is not found. PeerLost: it has none now, and may later.
Result<AddressList> addresses_now(const std::string& host, std::uint16_t port);

// A numeric IPv4 or IPv6 address. InvalidArgument for anything else.
Result<AddressList> numeric_address(const std::string& address, std::uint16_t port);

// Every interface, in both families.
Result<AddressList> any_address(std::uint16_t port);

// "10.0.0.1", "fe80::1%eth0"; empty if the system can't tell.
std::string numeric_text(const sockaddr* address, socklen_t bytes);

}  // namespace qccl::os
