// Non-blocking connects: begin, wait for the socket to become writable, check the result. connect_tcp() of
// os/net/socket.h is the blocking form.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// Begins to connect to a numeric IPv4 or IPv6 address. InvalidArgument for anything else; other failures show at once
// or only later.
Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port);

// The result, once the socket is writable: connected, or PeerLost (refused, unreachable, ...). Sets TCP_NODELAY, as
// connect_tcp() does.
Status end_connect_tcp(const Fd& socket);

}  // namespace qccl::os
