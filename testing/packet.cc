#include "packet.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace qccl::testing {

bool send_packet(int channel, PacketKind kind, std::initializer_list<std::string_view> fields) {
  std::string bytes(1, static_cast<char>(kind));
  for (const std::string_view field : fields) {
    const auto size = static_cast<std::uint32_t>(std::min(field.size(), kMaxFieldBytes));
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes.append(field.substr(0, size));
  }
  ssize_t sent = -1;
  do {
    sent = ::send(channel, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<Packet> receive_packet(int channel, bool wait) {
  std::string bytes(4 * kMaxFieldBytes, '\0');
  ssize_t size = -1;
  do {
    size = ::recv(channel, bytes.data(), bytes.size(), wait ? 0 : MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(size));
  Packet packet{static_cast<PacketKind>(bytes[0])};
  for (std::size_t at = 1; at + sizeof(std::uint32_t) <= bytes.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length);
    packet.fields.push_back(bytes.substr(at, length));
    at += length;
  }
  return packet;
}

std::pair<Fd, Fd> make_channel() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw_system_error("socketpair");
  return {Fd(ends[0]), Fd(ends[1])};
}

void throw_system_error(const std::string& what) {
  const int why = errno;
  throw std::runtime_error("qccl::testing: " + what + ": " + std::strerror(why));
}

}  // namespace qccl::testing
