#include "os/net/socket.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "os/process.h"

namespace qccl::os {
namespace {

IoResult result_of(ssize_t moved, bool reading) {
  IoResult result;
  if (moved > 0) {
    result.bytes = static_cast<std::size_t>(moved);
  } else if (moved == 0) {
    result.closed = reading;
    result.would_block = !reading;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    result.would_block = true;
  } else {
    result.error = errno;
  }
  return result;
}

iovec piece_of(ConstBytes bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

msghdr message_of(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

union DescriptorBuffer {
  cmsghdr header;
  char space[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
};

void take_descriptors(msghdr& message, std::vector<Fd>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

IoResult changed_on_the_way() { return {.error = EBADMSG}; }
IoResult out_of_memory() { return {.error = ENOMEM}; }

std::string describe(const IoResult& result) {
  if (result.closed) return "closed the connection (end of file)";
  if (result.error == ECONNRESET) return "connection reset (errno " + std::to_string(ECONNRESET) + ")";
  if (result.error == EBADMSG) return "sent bytes that fail authentication: they were changed on the way";
  return error_text(result.error);
}

IoResult read_some(int fd, Bytes target) {
  return result_of(::recv(fd, target.data(), target.size(), MSG_DONTWAIT), true);
}

IoResult read_some(int fd, Bytes first, Bytes second) {
  std::array<iovec, 2> pieces{piece_of(first), piece_of(second)};
  msghdr message = message_of(pieces);
  return result_of(::recvmsg(fd, &message, MSG_DONTWAIT), true);
}

IoResult write_some(int fd, ConstBytes source) {
  return result_of(::send(fd, source.data(), source.size(), MSG_DONTWAIT | MSG_NOSIGNAL), false);
}

IoResult write_some(int fd, std::span<const ConstBytes> pieces) {
  std::array<iovec, kMaxWritePieces> parts;
  const std::size_t count = std::min(pieces.size(), parts.size());
  for (std::size_t i = 0; i < count; ++i) parts[i] = piece_of(pieces[i]);
  const msghdr message = message_of(std::span(parts).first(count));
  return result_of(::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL), false);
}

IoResult send_descriptors(int fd, ConstBytes source, std::span<const int> descriptors) {
  if (descriptors.empty()) return write_some(fd, source);
  if (descriptors.size() > kMaxDescriptors) return {.error = EINVAL};
  DescriptorBuffer buffer{};
  iovec piece = piece_of(source);
  msghdr message = message_of({&piece, 1});
  message.msg_control = &buffer;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  return result_of(::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL), false);
}

IoResult recv_descriptors(int fd, Bytes target, std::vector<Fd>& descriptors) {
  DescriptorBuffer buffer{};
  iovec piece = piece_of(target);
  msghdr message = message_of({&piece, 1});
  message.msg_control = &buffer;
  message.msg_controllen = sizeof(buffer);
  const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const IoResult result = result_of(got, true);
  if (got >= 0) take_descriptors(message, descriptors);
  return result;
}

void end_sending(int fd) { ::shutdown(fd, SHUT_WR); }

namespace {

tcp_info state_of(int fd) {
  tcp_info info{};
  info.tcpi_min_rtt = UINT32_MAX;
  socklen_t size = sizeof(info);
  ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  return info;
}

}  // namespace

Nanoseconds shortest_round_trip(int fd) {
  const tcp_info info = state_of(fd);
  return info.tcpi_min_rtt == UINT32_MAX ? Nanoseconds{} : std::chrono::microseconds(info.tcpi_min_rtt);
}

TcpSample tcp_sample(int fd) {
  const tcp_info info = state_of(fd);
  return {.sent_packets = info.tcpi_data_segs_out,
          .resent_packets = info.tcpi_total_retrans,
          .received_bytes = info.tcpi_bytes_received,
          .received_packets = info.tcpi_data_segs_in,
          .early_packets = info.tcpi_rcv_ooopack,
          .round_trip = std::chrono::microseconds(info.tcpi_rtt),
          .shortest = std::chrono::microseconds(info.tcpi_min_rtt),
          .busy = std::chrono::microseconds(info.tcpi_busy_time),
          .limited = std::chrono::microseconds(info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited)};
}

void limit_window(int fd, std::uint32_t bytes) {
  constexpr std::uint32_t kNone = 1 << 30;
  const auto limit = static_cast<int>(bytes == 0 ? kNone : std::min(bytes, kNone));
  ::setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &limit, sizeof(limit));
}

Acknowledged acknowledged(int fd) {
  const tcp_info info = state_of(fd);
  return {.bytes = std::uint64_t{info.tcpi_delivered} * info.tcpi_snd_mss,
          .resent = info.tcpi_total_retrans,
          .waits = info.tcpi_notsent_bytes > 0,
          .busy = std::chrono::microseconds(info.tcpi_busy_time)};
}

std::size_t unacknowledged_bytes(int fd, Bytes scratch) {
  constexpr std::size_t kMostToDiscard = 64 * 1024 * 1024;  // per call: the peer may keep sending
  IoResult io;
  for (std::size_t discarded = 0; discarded < kMostToDiscard; discarded += io.bytes) {
    io = read_some(fd, scratch);
    if (io.lost()) return 0;
    if (!io.ok()) break;
  }
  int domain = AF_UNSPEC;
  socklen_t size = sizeof(domain);
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain == AF_INET || domain == AF_INET6 ? send_backlog(fd) : 0;
}

std::size_t send_backlog(int fd) {
  int left = 0;
  return ::ioctl(fd, SIOCOUTQ, &left) == 0 ? static_cast<std::size_t>(left) : 0;
}

std::optional<BufferSizes> tcp_buffer_sizes(const std::string& name) {
  std::istringstream words(system_value("/proc/sys/net/ipv4/" + name).value_or(""));
  BufferSizes sizes;
  if (words >> sizes.least >> sizes.initial >> sizes.largest) return sizes;
  return std::nullopt;
}

IoResult peek(int fd, std::byte& next) { return result_of(::recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT), true); }

bool peer_closed(int fd) {
  std::byte next;
  return peek(fd, next).lost();
}

}  // namespace qccl::os
