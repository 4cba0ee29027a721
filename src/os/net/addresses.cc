#include "os/net/addresses.h"

#include <fmt/format.h>

#include <cerrno>

#include "os/fd.h"
#include "os/net/socket.h"

namespace qccl::os {
namespace {

Result<AddressList> look_up(ErrorKind kind_of_failure, const std::string& host, std::uint16_t port, int flags) {
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
  const auto reason = error != 0 ? error_text(error) : ::gai_strerror(status);
  Failure failure(kind_of_failure, fmt::format("can't find an address for \"{}\": {}", host, reason));
  failure.info().os_error = error;
  return failure;
}

}  // namespace

Result<AddressList> addresses_now(const std::string& host, std::uint16_t port) {
  const std::string name = without_brackets(host);
  auto found = look_up(ErrorKind::peer_lost, name, port, 0);
  if (found || !name.ends_with('.')) return found;
  auto relative = look_up(ErrorKind::peer_lost, name.substr(0, name.size() - 1), port, 0);
  return relative ? std::move(relative) : std::move(found);
}

Result<AddressList> numeric_address(const std::string& address, std::uint16_t port) {
  return look_up(ErrorKind::invalid_argument, without_brackets(address), port, AI_NUMERICHOST);
}

Result<AddressList> any_address(std::uint16_t port) {
  return look_up(ErrorKind::invalid_argument, "", port, AI_PASSIVE);
}

std::string numeric_text(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

}  // namespace qccl::os
