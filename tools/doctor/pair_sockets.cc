#include "tools/doctor/pair_sockets.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/options.h"
#include "os/process.h"

namespace qccl::tools {
namespace {

constexpr Nanoseconds kToConnect = std::chrono::milliseconds(2000);  // to each address

std::uint64_t largest_buffer(const char* name) {
  return os::tcp_buffer_sizes(name).value_or(os::BufferSizes{}).largest;
}

// Connects and shows the nonce, which the listener repeats: another host may have the same address.
Result<os::Fd> connect_to(const char* address, const Card& card, TimePoint deadline, const Clock& clock) {
  QCCL_ASSIGN(os::Fd socket, os::begin_connect_tcp(address, card.port));
  QCCL_ASSIGN(const bool ready, os::wait_ready(socket, os::Direction::write, deadline, clock));
  if (!ready) return Failure(ErrorKind::deadline_exceeded, "no answer");
  QCCL_TRY(os::end_connect_tcp(socket));
  std::uint64_t nonce = card.nonce, answer = 0;
  QCCL_TRY(os::write_exactly(socket, bytes_of(nonce), deadline, clock));
  QCCL_TRY(os::read_exactly(socket, bytes_of(answer), deadline, clock));
  if (answer != ~nonce) return Failure(ErrorKind::corrupt_data, "another program answered");
  return socket;
}

}  // namespace

Result<Card> make_card(const os::Fd& listener, std::uint64_t nonce) {
  Card card{.nonce = nonce, .send_buffer = largest_buffer("tcp_wmem"), .receive_buffer = largest_buffer("tcp_rmem")};
  QCCL_ASSIGN(card.port, os::local_port(listener));
  const auto filter = environment("QCCL_SOCKET_IFNAME");
  QCCL_ASSIGN(auto interfaces, os::list_interfaces(filter ? *filter : environment("NCCL_SOCKET_IFNAME").value_or("")));
  std::ranges::stable_partition(interfaces, [](const auto& each) { return !each.loopback; });
  std::size_t next = 0;
  for (const auto& each : interfaces) {
    if (each.link_local || each.address.size() >= card.addresses[0].size() || next == card.addresses.size()) continue;
    std::copy(each.address.begin(), each.address.end(), card.addresses[next++].begin());
  }
  return card;
}

Result<std::vector<os::Fd>> connect_all(const Card& card, TimePoint deadline, const Clock& clock) {
  std::string reasons = card.nonce == 0 ? "it does not listen" : "";
  for (const auto& address : card.addresses) {
    if (address[0] == '\0' || card.nonce == 0) continue;
    std::vector<os::Fd> sockets;
    while (sockets.size() < kPairSockets) {
      auto socket = connect_to(address.data(), card, std::min(deadline, clock.now() + kToConnect), clock);
      if (!socket.ok()) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", os::address_text(address.data(), card.port),
                               socket.error().message);
        break;
      }
      sockets.push_back(std::move(socket.value()));
    }
    if (sockets.size() == kPairSockets) return sockets;
  }
  return Failure(ErrorKind::peer_lost, "can't connect: " + (reasons.empty() ? "it has no address" : reasons));
}

Result<std::vector<os::Fd>> accept_all(const os::Fd& listener, std::uint64_t nonce, TimePoint deadline,
                                       const Clock& clock) {
  std::vector<os::Fd> sockets;
  while (sockets.size() < kPairSockets) {
    QCCL_ASSIGN(const bool ready, os::wait_ready(listener, os::Direction::read, deadline, clock));
    if (!ready) return Failure(ErrorKind::deadline_exceeded, "no connection came");
    QCCL_ASSIGN(auto socket, os::accept_connection(listener));
    if (!socket) continue;
    std::uint64_t shown = 0, answer = ~nonce;
    const TimePoint soon = std::min(deadline, clock.now() + kToConnect);
    if (!os::read_exactly(*socket, bytes_of(shown), soon, clock).ok() || shown != nonce) continue;
    QCCL_TRY(os::set_no_delay(*socket));
    QCCL_TRY(os::write_exactly(*socket, bytes_of(answer), soon, clock));
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

}  // namespace qccl::tools
