#include "os/net/dial.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "os/error.h"
#include "os/net/socket.h"

namespace qccl::os {

Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Failure(ErrorKind::invalid_argument, "\"" + address + "\" is no numeric address");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  const std::string what = "can't connect to " + address_text(address, port);
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return os_failure(what, errno);
  const bool connected = ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  if (connected || errno == EINPROGRESS || errno == EINTR) return fd;
  return os_failure(what, errno);
}

Status end_connect_tcp(const Fd& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return os_failure("can't connect", error);
  return set_no_delay(socket);
}

}  // namespace qccl::os
