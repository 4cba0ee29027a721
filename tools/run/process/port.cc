#include "tools/run/process/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace qccl::tools {

std::optional<ReservedPort> ReservedPort::take() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), name, size) != 0 || ::getsockname(socket.get(), name, &size) != 0) return std::nullopt;
  return ReservedPort(std::move(socket), ntohs(address.sin_port));
}

}  // namespace qccl::tools
