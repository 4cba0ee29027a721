#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>

#include "os/net/addresses.h"
#include "os/net/socket.h"

namespace qccl::os {
namespace {

// A socket that `attach`, which is bind() or connect(), has given an abstract name: one with a leading zero byte.
Result<Fd> open_abstract(const std::string& name, const std::string& what,
                         int (*attach)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  if (name.empty() || name.size() >= sizeof(address.sun_path)) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("unix socket name \"{}\" must have 1 to {} bytes", name, sizeof(address.sun_path) - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd fd(::socket(AF_UNIX, kStream, 0));
  if (fd.valid() && attach(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return fd;
  return os_failure(what + name, errno);
}

}  // namespace

Result<Fd> listen_unix_abstract(const std::string& name) {
  const std::string what = "can't listen on unix socket @";
  QCCL_ASSIGN(Fd fd, open_abstract(name, what, ::bind));
  if (::listen(fd.get(), kBacklog) == 0) return fd;
  return os_failure(what + name, errno);
}

void stop_listening(const Fd& listener) { ::shutdown(listener.get(), SHUT_RDWR); }

Result<Fd> connect_unix_abstract(const std::string& name) {
  return open_abstract(name, "can't connect to unix socket @", ::connect);
}

// Lines "Num RefCount Protocol Flags Type St Inode Path"; listeners have the flag __SO_ACCEPTCON.
std::vector<std::string> abstract_listeners(const std::string& prefix) {
  constexpr unsigned kListens = 0x10000;
  std::vector<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string number, references, protocol, type, state, inode, path;
    unsigned flags = 0;
    words >> number >> references >> protocol >> std::hex >> flags >> type >> state >> inode >> path;
    if ((flags & kListens) != 0 && path.starts_with("@" + prefix)) names.push_back(path.substr(1));
  }
  return names;
}

Result<PeerCredentials> peer_credentials(const Fd& unix_socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(unix_socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return os_failure("can't tell who is at the other end of a unix socket", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

// The kernel reports the effective user.
PeerCredentials own_credentials() { return {::getpid(), ::geteuid()}; }

Status check_same_user(const Fd& unix_socket) {
  QCCL_ASSIGN(const PeerCredentials peer, peer_credentials(unix_socket));
  return check_same_user(peer, own_credentials());
}

Status check_same_user(const PeerCredentials& peer, const PeerCredentials& own) {
  if (peer.user == own.user) return {};
  return Failure(
      ErrorKind::misuse,
      fmt::format("process {} at the other end of the unix socket belongs to user {}, this process to user {}",
                  peer.process, peer.user, own.user));
}

Result<Fd> duplicate_socket(int descriptor) {
  const auto what = fmt::format("descriptor {} is no open socket of this process", descriptor);
  Fd fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return os_failure(what, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) == 0 && S_ISSOCK(status.st_mode)) return fd;
  return os_failure(ErrorKind::misuse, what, ENOTSOCK);
}

Result<SocketPair> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, kStream, 0, fds) != 0) return os_failure("can't create a socket pair", errno);
  return SocketPair{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace qccl::os
