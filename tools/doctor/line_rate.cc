#include "tools/doctor/line_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/options.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::tools {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostHosts = 8;
// The first connection carries questions and answers, the next one the measurement of one, the rest that of four.
constexpr std::size_t kSockets = 6;
constexpr Nanoseconds kToConnect = milliseconds(2000);  // to each address
constexpr Nanoseconds kPairTime = milliseconds(20000);
constexpr Milliseconds kBarrierTime(60000);
constexpr Nanoseconds kDistant = milliseconds(1);  // QCCL_CONGESTION counts from here on
constexpr double kClearlyMore = 1.5;
// A connection with this part of what the buffers allow is limited by them: the kernel keeps the rest for its records.
constexpr double kLimitedPart = 0.4;

// What a rank tells all others.
struct Card {
  std::uint64_t nonce = 0;  // 0: it does not listen
  std::uint64_t send_buffer = 0, receive_buffer = 0;
  std::uint16_t port = 0;
  std::array<std::array<char, 64>, 6> addresses{};
};

struct Rates {
  double round_trip = 0;     // seconds
  double one = 0, four = 0;  // bytes per second
};

struct Plan {
  Nanoseconds warm_up, window;  // slow start and the growth of buffers; the time that counts
};

Plan plan_for(Nanoseconds round_trip) {
  return {std::clamp<Nanoseconds>(12 * round_trip, milliseconds(300), milliseconds(2500)),
          std::clamp<Nanoseconds>(4 * round_trip, milliseconds(600), milliseconds(1500))};
}

std::uint64_t largest_buffer(const char* name) {
  return os::tcp_buffer_sizes(name).value_or(os::BufferSizes{}).largest;
}

template <class T>
Bytes bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

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

Result<std::vector<os::Fd>> connect_all(const Card& card, TimePoint deadline, const Clock& clock) {
  std::string reasons = card.nonce == 0 ? "it does not listen" : "";
  for (const auto& address : card.addresses) {
    if (address[0] == '\0' || card.nonce == 0) continue;
    std::vector<os::Fd> sockets;
    while (sockets.size() < kSockets) {
      auto socket = connect_to(address.data(), card, std::min(deadline, clock.now() + kToConnect), clock);
      if (!socket.ok()) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", os::address_text(address.data(), card.port),
                               socket.error().message);
        break;
      }
      sockets.push_back(std::move(socket.value()));
    }
    if (sockets.size() == kSockets) return sockets;
  }
  return Failure(ErrorKind::peer_lost, "can't connect: " + (reasons.empty() ? "it has no address" : reasons));
}

Result<std::vector<os::Fd>> accept_all(const os::Fd& listener, std::uint64_t nonce, TimePoint deadline,
                                       const Clock& clock) {
  std::vector<os::Fd> sockets;
  while (sockets.size() < kSockets) {
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

// Fills the connections for `duration`.
Status send_for(std::span<const os::Fd> sockets, Nanoseconds duration, const Clock& clock) {
  const std::vector<std::byte> block(256 * 1024);
  QCCL_ASSIGN(os::Poller poller, os::Poller::create());
  for (std::size_t i = 0; i < sockets.size(); ++i) QCCL_TRY(poller.watch_writable(sockets[i].get(), i));
  const TimePoint end = clock.now() + duration;
  for (TimePoint now = clock.now(); now < end; now = clock.now()) {
    for (const auto& ready : poller.wait(end - now)) {
      const os::IoResult sent = os::write_some(sockets[ready.token].get(), block);
      if (sent.lost()) return Failure(ErrorKind::peer_lost, "the peer " + os::describe(sent));
    }
  }
  for (const os::Fd& socket : sockets) os::end_sending(socket.get());
  return {};
}

// Reads until the end of all connections; the bytes per second of the window that begins `warm_up` after the first.
Result<double> receive(std::span<const os::Fd> sockets, const Plan& plan, TimePoint deadline, const Clock& clock) {
  std::vector<std::byte> block(1 << 20);
  QCCL_ASSIGN(os::Poller poller, os::Poller::create());
  for (std::size_t i = 0; i < sockets.size(); ++i) QCCL_TRY(poller.watch(sockets[i].get(), i));
  TimePoint start = kForever, end = kForever;
  std::size_t open = sockets.size();
  double bytes = 0;
  while (open > 0) {
    if (clock.now() >= deadline) return Failure(ErrorKind::deadline_exceeded, "the bytes do not end");
    for (const auto& ready : poller.wait(deadline - clock.now())) {
      const os::IoResult got = os::read_some(sockets[ready.token].get(), block);
      if (got.error != 0) return Failure(ErrorKind::peer_lost, "the peer " + os::describe(got));
      if (got.closed) {
        poller.forget(sockets[ready.token].get());
        --open;
      }
      const TimePoint now = clock.now();
      if (start == kForever) {
        start = now + plan.warm_up;
        end = start + plan.window;
      }
      if (now >= start && now < end) bytes += static_cast<double>(got.bytes);
    }
  }
  return bytes / std::chrono::duration<double>(plan.window).count();
}

Result<Rates> measure_to(const Card& card, const Clock& clock) {
  const TimePoint deadline = clock.now() + kPairTime;
  QCCL_ASSIGN(const std::vector<os::Fd> sockets, connect_all(card, deadline, clock));
  const os::Fd& control = sockets[0];
  Nanoseconds shortest = kPairTime;
  for (std::int64_t i = 0; i < 5; ++i) {
    const TimePoint asked = clock.now();
    QCCL_TRY(os::write_exactly(control, bytes_of(i), deadline, clock));
    QCCL_TRY(os::read_exactly(control, bytes_of(i), deadline, clock));
    shortest = std::min(shortest, clock.now() - asked);
  }
  std::int64_t told = shortest.count();
  QCCL_TRY(os::write_exactly(control, bytes_of(told), deadline, clock));
  const std::string congestion = environment("QCCL_CONGESTION").value_or("cubic");
  for (const os::Fd& socket : sockets) {
    if (shortest >= kDistant && congestion != "system") os::set_congestion_control(socket, congestion);
  }
  const Plan plan = plan_for(shortest);
  Rates rates{.round_trip = std::chrono::duration<double>(shortest).count()};
  const std::span all(sockets);
  for (const auto& [used, rate] : {std::pair(all.subspan(1, 1), &rates.one), std::pair(all.subspan(2), &rates.four)}) {
    QCCL_TRY(send_for(used, plan.warm_up + plan.window + milliseconds(100), clock));
    QCCL_TRY(os::read_exactly(control, bytes_of(*rate), deadline, clock));
  }
  return rates;
}

Status answer(const os::Fd& listener, std::uint64_t nonce, const Clock& clock) {
  const TimePoint deadline = clock.now() + kPairTime;
  QCCL_ASSIGN(const std::vector<os::Fd> sockets, accept_all(listener, nonce, deadline, clock));
  std::int64_t word = 0;
  for (int i = 0; i < 5; ++i) {
    QCCL_TRY(os::read_exactly(sockets[0], bytes_of(word), deadline, clock));
    QCCL_TRY(os::write_exactly(sockets[0], bytes_of(word), deadline, clock));
  }
  QCCL_TRY(os::read_exactly(sockets[0], bytes_of(word), deadline, clock));
  const Plan plan = plan_for(Nanoseconds(word));
  const std::span all(sockets);
  for (const auto& used : {all.subspan(1, 1), all.subspan(2)}) {
    QCCL_ASSIGN(double rate, receive(used, plan, deadline, clock));
    QCCL_TRY(os::write_exactly(sockets[0], bytes_of(rate), deadline, clock));
  }
  return {};
}

// How many TCP connections the group has to that rank, from its description; 1 if that names none.
int connections_to(const Communicator& world, int peer) {
  const std::string text = world.describe();
  const std::size_t end = text.find(fmt::format(" connections to rank {}", peer));
  if (end == std::string::npos) return 1;
  const std::size_t begin = text.rfind(' ', end - 1);
  return std::max(1, std::atoi(text.c_str() + begin + 1));
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second < 1e9 / 8 ? fmt::format("{:.3g} Mbit/s", bytes_per_second * 8e-6)
                                    : fmt::format("{:.3g} Gbit/s", bytes_per_second * 8e-9);
}

void report(const Communicator& world, int peer, const Rates& rates, std::uint64_t buffer, LineReport& out) {
  const std::string pair = fmt::format("rank {} to rank {}", world.rank(), peer);
  const double allowed = static_cast<double>(buffer) / rates.round_trip;
  const int connections = connections_to(world, peer);
  out.lines += fmt::format("{:<21}{}: {:.3g} ms there and back; {} by one connection, {} by four; ", "line", pair,
                           rates.round_trip * 1e3, rate_text(rates.one), rate_text(rates.four));
  out.lines += fmt::format("tcp_wmem and tcp_rmem allow {} each; QCCL has {}\n", rate_text(allowed), connections);
  if (rates.four < kClearlyMore * rates.one || connections >= 4) return;
  const bool limited = rates.one >= kLimitedPart * allowed;
  const auto needed = static_cast<std::uint64_t>(2 * rates.four * rates.round_trip);
  const std::string remedy = limited ? fmt::format(
                                           "on both hosts: sysctl -w net.ipv4.tcp_wmem=\"4096 16384 {}\" "
                                           "net.ipv4.tcp_rmem=\"4096 131072 {}\"",
                                           needed, needed + needed / 2)
                                     : "QCCL_CONNECTIONS=8 on all ranks (docs/lines.md)";
  out.complaints += fmt::format("WARNING {}: four connections carry {:.1f} times as much as one{}\n    fix: {}\n", pair,
                                rates.four / rates.one, limited ? ", which TCP's buffers limit" : "", remedy);
}

// The first rank of each host.
std::vector<int> first_ranks(const std::vector<int>& hosts) {
  std::vector<int> firsts;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (std::find(hosts.begin(), hosts.end(), hosts[rank]) - hosts.begin() == static_cast<std::ptrdiff_t>(rank)) {
      firsts.push_back(static_cast<int>(rank));
    }
  }
  return firsts;
}

// The partner of each in a round of a tournament in which each meets each: number `rounds` stays where it is, the
// others go around. An odd one has itself.
std::size_t partner_of(std::size_t player, std::size_t round, std::size_t players) {
  const std::size_t rounds = players % 2 == 0 ? players - 1 : players;
  const std::size_t opposite = (2 * round + rounds - player % rounds) % rounds;
  if (players % 2 != 0) return opposite;
  if (player == rounds) return round;
  return opposite == player ? rounds : opposite;
}

// `cards`: by rank.
void measure_line(Communicator& world, const std::vector<Card>& cards, int receiver, const Clock& clock,
                  LineReport& out) {
  const Card& card = cards[static_cast<std::size_t>(receiver)];
  const Card& own = cards[static_cast<std::size_t>(world.rank())];
  const auto rates = measure_to(card, clock);
  if (rates.ok()) {
    report(world, receiver, rates.value(), std::min(own.send_buffer, card.receive_buffer), out);
    return;
  }
  out.complaints +=
      fmt::format("WARNING rank {} to rank {}: the line can't be measured: {}\n    fix: {}\n", world.rank(), receiver,
                  rates.error().message, "open TCP ports between the hosts; QCCL_SOCKET_IFNAME chooses the interface");
}

}  // namespace

LineReport measure_lines(Communicator& world) {
  LineReport out;
  std::vector<int> players = first_ranks(world.hosts());
  players.resize(std::min(players.size(), kMostHosts));
  if (players.size() < 2) return out;
  const SteadyClock clock;
  const std::uint64_t nonce = os::random_nonce() | 1;
  Card own;
  auto listener = os::listen_tcp("", 0);
  if (listener.ok()) {
    if (auto card = make_card(listener.value(), nonce); card.ok()) own = card.value();
  }
  std::vector<Card> cards(static_cast<std::size_t>(world.size()));
  world.all_gather(&own, cards.data(), sizeof(Card), DataType::uint8);
  const auto found = std::find(players.begin(), players.end(), world.rank());
  const auto player = static_cast<std::size_t>(found - players.begin());
  const std::size_t rounds = players.size() - 1 + players.size() % 2;
  // Each round twice, so that both partners send.
  for (std::size_t turn = 0; turn < 2 * rounds; ++turn) {
    const std::size_t partner = player < players.size() ? partner_of(player, turn / 2, players.size()) : player;
    const bool sends = (player < partner) == (turn % 2 == 0);
    if (partner != player && sends) {
      measure_line(world, cards, players[partner], clock, out);
    } else if (partner != player && own.nonce != 0) {
      // The sender reports a failure: it loses its connections.
      static_cast<void>(answer(listener.value(), nonce, clock).ok());
    }
    world.barrier({.timeout = kBarrierTime});
  }
  return out;
}

}  // namespace qccl::tools
