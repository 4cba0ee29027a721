// Connections that are made while other things go on: begin, wait for the socket to become
// writable, see how it ended. connect_tcp() of os/net/socket.h is the form that blocks.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// Begins to connect to a numeric IPv4 or IPv6 address. InvalidArgument for anything else; other
// failures are known at once only sometimes.
Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port);

// How it ended, once the socket is writable: connected, or PeerLost (refused, unreachable, ...).
// Makes small frames leave at once, as connect_tcp() does.
Status end_connect_tcp(const Fd& socket);

}  // namespace qccl::os
