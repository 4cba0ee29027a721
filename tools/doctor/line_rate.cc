#include "tools/doctor/line_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <thread>

#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "tools/doctor/line_judgement.h"
#include "tools/doctor/pair_sockets.h"

namespace qccl::tools {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostHosts = 8;
constexpr Nanoseconds kPairTime = milliseconds(20000);
constexpr Milliseconds kBarrierTime(60000);
constexpr Nanoseconds kDistant = milliseconds(1);  // QCCL_CONGESTION counts from here on
constexpr double kClearlyMore = 1.5;
constexpr double kLoses = 2.5;                        // times more by four: each of them is limited by its own losses
constexpr Nanoseconds kSampleTime = milliseconds(2);  // between two looks at a round trip
// How long the job rests to see what other programs send.
constexpr Nanoseconds kRest = milliseconds(1000);
// A connection with this part of what the buffers allow is limited by them: the kernel keeps the rest for its records.
constexpr double kLimitedPart = 0.4;

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

struct Rates {
  double round_trip = 0;     // seconds
  FilledLine one{}, four{};  // by so many connections

  // Four leave a queue empty for shorter times; but where one does not fill the line, another queue is not full when
  // packets are dropped.
  FilledLine of_queue() const {
    FilledLine line = four.rate < kLoses * one.rate ? four : one;
    line.sent_packets = one.sent_packets + four.sent_packets;
    line.resent_packets = one.resent_packets + four.resent_packets;
    return line;
  }
};

struct Plan {
  Nanoseconds warm_up, window;  // slow start and the growth of buffers; the time that counts
};

Plan plan_for(Nanoseconds round_trip) {
  return {std::clamp<Nanoseconds>(12 * round_trip, milliseconds(300), milliseconds(2500)),
          std::clamp<Nanoseconds>(4 * round_trip, milliseconds(600), milliseconds(1500))};
}

// Fills the connections for `duration`; the round trip of the first one while its queue was full: a quarter of the
// samples was longer, so that moments in which a host did nothing do not count.
Result<Nanoseconds> send_for(std::span<const os::Fd> sockets, Nanoseconds duration, const Clock& clock) {
  const std::vector<std::byte> block(256 * 1024);
  QCCL_ASSIGN(os::Poller poller, os::Poller::create());
  for (std::size_t i = 0; i < sockets.size(); ++i) QCCL_TRY(poller.watch_writable(sockets[i].get(), i));
  const TimePoint end = clock.now() + duration;
  std::vector<Nanoseconds> round_trips;
  for (TimePoint now = clock.now(); now < end; now = clock.now()) {
    for (const auto& ready : poller.wait(std::min<Nanoseconds>(end - now, kSampleTime))) {
      const os::IoResult sent = os::write_some(sockets[ready.token].get(), block);
      if (sent.lost()) return Failure(ErrorKind::peer_lost, "the peer " + os::describe(sent));
    }
    round_trips.push_back(os::tcp_sample(sockets[0].get()).round_trip);
  }
  for (const os::Fd& socket : sockets) os::end_sending(socket.get());
  if (round_trips.empty()) return Nanoseconds{};
  const auto full = round_trips.begin() + static_cast<std::ptrdiff_t>(round_trips.size() * 3 / 4);
  std::ranges::nth_element(round_trips, full);
  return *full;
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
  return bytes / seconds(plan.window);
}

// By connections to the peer that answers over `control`.
Result<FilledLine> fill(std::span<const os::Fd> sockets, const os::Fd& control, const Plan& plan, TimePoint deadline,
                        const Clock& clock) {
  QCCL_ASSIGN(const Nanoseconds full, send_for(sockets, plan.warm_up + plan.window + milliseconds(100), clock));
  FilledLine line{.full_round_trip = seconds(full)};
  QCCL_TRY(os::read_exactly(control, bytes_of(line.rate), deadline, clock));
  Nanoseconds shortest = kPairTime;
  for (const os::Fd& socket : sockets) {
    const os::TcpSample seen = os::tcp_sample(socket.get());
    shortest = std::min(shortest, seen.shortest);
    line.sent_packets += seen.sent_packets;
    line.resent_packets += seen.resent_packets;
  }
  line.shortest_round_trip = seconds(shortest);
  return line;
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
  std::string congestion = environment("QCCL_CONGESTION").value_or("auto");
  if (congestion == "auto") congestion = "cubic";
  for (const os::Fd& socket : sockets) {
    if (shortest >= kDistant && congestion != "system") os::set_congestion_control(socket, congestion);
  }
  const Plan plan = plan_for(shortest);
  Rates rates{.round_trip = seconds(shortest)};
  const std::span all(sockets);
  QCCL_ASSIGN(rates.one, fill(all.subspan(1, 1), control, plan, deadline, clock));
  QCCL_ASSIGN(rates.four, fill(all.subspan(2), control, plan, deadline, clock));
  return rates;
}

// The most that came in, in bytes a second.
Result<double> answer(const os::Fd& listener, std::uint64_t nonce, const Clock& clock) {
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
  double most = 0;
  for (const auto& used : {all.subspan(1, 1), all.subspan(2)}) {
    QCCL_ASSIGN(double rate, receive(used, plan, deadline, clock));
    QCCL_TRY(os::write_exactly(sockets[0], bytes_of(rate), deadline, clock));
    most = std::max(most, rate);
  }
  return most;
}

// How many TCP connections the group has to that rank, from its description; 1 if that names none.
int connections_to(const Communicator& world, int peer) {
  const std::string text = world.describe();  // "..., tcp by 4 connections to ranks 1, 2, shm to rank 3"
  const std::regex several("([0-9]+) connections to ranks?((?: [0-9]+,?)+)");
  for (std::sregex_iterator found(text.begin(), text.end(), several), end; found != end; ++found) {
    std::istringstream ranks((*found)[2].str());
    for (int rank = 0; ranks >> rank; ranks.ignore(1, ',')) {
      if (rank == peer) return std::max(1, std::atoi((*found)[1].str().c_str()));
    }
  }
  return 1;
}

void report(const Communicator& world, int peer, const Rates& rates, std::uint64_t buffer, LineReport& out) {
  const std::string pair = fmt::format("rank {} to rank {}", world.rank(), peer);
  const double allowed = static_cast<double>(buffer) / rates.round_trip;
  const int connections = connections_to(world, peer);
  out.lines += fmt::format("{:<21}{}: {:.3g} ms there and back; {} by one connection, {} by four; ", "line", pair,
                           rates.round_trip * 1e3, line_rate_text(rates.one.rate), line_rate_text(rates.four.rate));
  out.lines += fmt::format("tcp_wmem and tcp_rmem allow {} each; QCCL has {}{}\n", line_rate_text(allowed), connections,
                           judge_queue(rates.of_queue()));
  if (rates.four.rate < kClearlyMore * rates.one.rate || connections >= 4) return;
  const bool limited = rates.one.rate >= kLimitedPart * allowed;
  const auto needed = static_cast<std::uint64_t>(2 * rates.four.rate * rates.round_trip);
  const std::string remedy = limited ? fmt::format(
                                           "on both hosts: sysctl -w net.ipv4.tcp_wmem=\"4096 16384 {}\" "
                                           "net.ipv4.tcp_rmem=\"4096 131072 {}\"",
                                           needed, needed + needed / 2)
                                     : "QCCL_CONNECTIONS=8 on all ranks (docs/lines.md)";
  out.complaints += fmt::format("WARNING {}: four connections carry {:.1f} times as much as one{}\n    fix: {}\n", pair,
                                rates.four.rate / rates.one.rate, limited ? ", which TCP's buffers limit" : "", remedy);
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

// `cards`: by rank. The most that the line carried, in bytes a second; 0 if it could not be measured.
double measure_line(Communicator& world, const std::vector<Card>& cards, int receiver, const Clock& clock,
                    LineReport& out) {
  const Card& card = cards[static_cast<std::size_t>(receiver)];
  const Card& own = cards[static_cast<std::size_t>(world.rank())];
  const auto rates = measure_to(card, clock);
  if (rates.ok()) {
    report(world, receiver, rates.value(), std::min(own.send_buffer, card.receive_buffer), out);
    return std::max(rates.value().one.rate, rates.value().four.rate);
  }
  out.complaints +=
      fmt::format("WARNING rank {} to rank {}: the line can't be measured: {}\n    fix: {}\n", world.rank(), receiver,
                  rates.error().message, "open TCP ports between the hosts; QCCL_SOCKET_IFNAME chooses the interface");
  return 0;
}

// What other programs send and receive while all ranks rest. Collective.
HostRates rates_at_rest(Communicator& world) {
  const auto bytes = [] {
    std::ifstream file("/proc/net/dev");
    return parse_network_bytes(std::string(std::istreambuf_iterator<char>(file), {}));
  };
  world.barrier({.timeout = kBarrierTime});
  const NetworkBytes before = bytes();
  std::this_thread::sleep_for(kRest);
  const NetworkBytes after = bytes();
  world.barrier({.timeout = kBarrierTime});
  return {.others_out = static_cast<double>(after.out - before.out) / seconds(kRest),
          .others_in = static_cast<double>(after.in - before.in) / seconds(kRest)};
}

// Collective; the first of `players`, one rank of each host, reports.
void report_hosts(Communicator& world, const std::vector<int>& players, const HostRates& own, LineReport& out) {
  std::vector<HostRates> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&own, all.data(), sizeof(HostRates), DataType::uint8);
  if (world.rank() != players[0]) return;
  std::vector<HostRates> hosts;
  for (const int rank : players) hosts.push_back(all[static_cast<std::size_t>(rank)]);
  for (const std::string& finding : judge_hosts(hosts, players))
    out.lines += fmt::format("{:<21}{}\n", "line", finding);
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
  HostRates rates = rates_at_rest(world);
  // Each round twice, so that both partners send.
  for (std::size_t turn = 0; turn < 2 * rounds; ++turn) {
    const std::size_t partner = player < players.size() ? partner_of(player, turn / 2, players.size()) : player;
    const bool sends = (player < partner) == (turn % 2 == 0);
    if (partner != player && sends) {
      rates.out = std::max(rates.out, measure_line(world, cards, players[partner], clock, out));
    } else if (partner != player && own.nonce != 0) {
      // The sender reports a failure: it loses its connections.
      const auto came = answer(listener.value(), nonce, clock);
      if (came.ok()) rates.in = std::max(rates.in, came.value());
    }
    world.barrier({.timeout = kBarrierTime});
  }
  report_hosts(world, players, rates, out);
  return out;
}

}  // namespace qccl::tools
