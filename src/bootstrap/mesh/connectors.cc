#include "bootstrap/mesh/connectors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "bootstrap/meeting/card_exchange.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint64_t kTcpListener = 0;
constexpr std::uint64_t kLocalListener = 1;
constexpr std::uint64_t kFirstPending = 2;
constexpr int kAcceptsPerTurn = 64;  // then connected peers are served
constexpr std::uint64_t kFewestPending = 16;
constexpr std::size_t kMostRefusals = 8;

constexpr Nanoseconds kFirstDelay = std::chrono::milliseconds(5);
constexpr Nanoseconds kLastDelay = std::chrono::milliseconds(250);

std::string location_of(const DialTarget& target, SocketKind kind, std::size_t address) {
  return kind == SocketKind::local ? "unix socket @" + target.unix_name
                                   : os::address_text(target.addresses[address], target.port);
}

std::uint64_t dial_index(const DialTarget& target) {
  return static_cast<std::uint64_t>(target.rank) * wire::kMaxConnections + target.index;
}

std::uint64_t token_of(const DialTarget& target) { return socket_token(SocketOwner::dialler, dial_index(target)); }

}  // namespace

Status Acceptor::start(Listeners listeners, const wire::Hello& own, const ConnectionPolicy& policy,
                       const PairSecrets* secrets) {
  listeners_ = std::move(listeners);
  own_ = own;
  policy_ = policy;
  secrets_ = secrets;
  next_id_ = kFirstPending;
  max_pending_ =
      static_cast<std::size_t>(std::clamp<std::uint64_t>(os::spare_files() / 4, kFewestPending, kMaxPending));
  if (listeners_.tcp.valid()) {
    QCCL_TRY(poller_.watch(listeners_.tcp.get(), socket_token(SocketOwner::acceptor, kTcpListener)));
  }
  if (listeners_.local.valid()) {
    QCCL_TRY(poller_.watch(listeners_.local.get(), socket_token(SocketOwner::acceptor, kLocalListener)));
  }
  return {};
}

Status Acceptor::ready(std::uint64_t index) {
  if (index == kTcpListener) return accept_waiting(listeners_.tcp, SocketKind::tcp);
  if (index == kLocalListener) return accept_waiting(listeners_.local, SocketKind::local);
  serve(index);
  return {};
}

Status Acceptor::accept_waiting(const os::Fd& listener, SocketKind kind) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = os::accept_connection(listener);
    if (!accepted) {
      const auto displaced = strangers_.to_displace();
      if (!displaced) return accepted.failure();
      drop(*displaced);
      continue;
    }
    if (!*accepted) return {};
    welcome(std::move(**accepted), kind);
  }
  return {};
}

// Without a key, a rank's connection brings its Hello along, so serve it at once: only strangers stay pending. With
// one, its handshake takes a round trip, in which a crowd from elsewhere does not displace it.
void Acceptor::welcome(os::Fd socket, SocketKind kind) {
  const std::uint64_t id = next_id_++;
  if (kind == SocketKind::local && !is_of_this_user(socket)) return;
  if (kind == SocketKind::tcp && !os::set_no_delay(socket)) return;
  if (!poller_.watch(socket.get(), socket_token(SocketOwner::acceptor, id))) return;
  strangers_.add(id, kind == SocketKind::local ? "" : os::peer_address(socket), clock_.now());
  pending_.emplace(id, Handshake(own_, policy_, secrets_, {-1, kind, std::move(socket)}));
  serve(id);
  if (pending_.size() > max_pending_) drop(*strangers_.to_displace());
}

void Acceptor::drop(std::uint64_t id) {
  pending_.erase(id);
  strangers_.forget(id);
}

// Logs the first connection of another user, not a thousand of them.
bool Acceptor::is_of_this_user(const os::Fd& socket) {
  const Status same = os::check_same_user(socket);
  if (same.ok()) return true;
  if (!warned_of_user_) {
    log(LogLevel::warning, fmt::format("rank {} refused a connection: {}", own_.rank, same.error().message));
  }
  warned_of_user_ = true;
  return false;
}

void Acceptor::serve(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Handshake& handshake = found->second;
  const Result<bool> done = handshake.advance();
  if (done && !done.value()) return;
  if (done) {
    poller_.forget(handshake.socket().get());
    peers_.push_back(handshake.take());
  } else if (done.error().kind == ErrorKind::misuse || done.error().kind == ErrorKind::unsupported) {
    refused(handshake.socket(), done.error());
  }
  drop(id);
}

// With a key, logs the first few as warnings: a rank with another key finds itself refused, and whoever started it asks
// here.
void Acceptor::refused(const os::Fd& socket, const ErrorInfo& why) {
  const auto text =
      fmt::format("rank {} dropped a connection from {}: {}", own_.rank, os::peer_address(socket), why.message);
  const bool has_key = secrets_ != nullptr && secrets_->has_key();
  const bool warns = has_key && refusals_.size() < kMostRefusals && refusals_.insert(text).second;
  log(warns ? LogLevel::warning : LogLevel::info, text);
}

void Acceptor::expire() {
  const TimePoint now = clock_.now();
  while (const auto id = strangers_.overdue(now)) drop(*id);
}

void Dialler::add(DialTarget target) {
  Dial& dial = dials_[dial_index(target)];
  dial.kind = target.unix_name.empty() ? SocketKind::tcp : SocketKind::local;
  dial.delay = kFirstDelay;
  dial.due = clock_.now();
  dial.target = std::move(target);
}

Status Dialler::turn() {
  for (auto next = dials_.begin(); next != dials_.end();) {
    Dial& dial = (next++)->second;  // may be erased
    if (clock_.now() < dial.due) continue;
    if (dial.handshake) {
      QCCL_TRY(attempt_failed(dial, "connected, but no handshake", false));
    } else if (dial.connecting.valid()) {
      QCCL_TRY(attempt_failed(dial, "no answer", false));
    } else {
      QCCL_TRY(begin(dial));
    }
  }
  return {};
}

TimePoint Dialler::next_turn() const {
  TimePoint next = kForever;
  for (const auto& [index, dial] : dials_) next = std::min(next, dial.due);
  return next;
}

Status Dialler::begin(Dial& dial) {
  if (dial.kind == SocketKind::tcp) return begin_tcp(dial);
  auto socket = os::connect_unix_abstract(dial.target.unix_name);
  const bool refused = !socket && socket.error().kind == ErrorKind::peer_lost;
  if (refused && !dial.target.local_only) {
    // The same kernel but another network namespace counts as another host.
    dial.kind = SocketKind::tcp;
    return begin_tcp(dial);
  }
  if (!socket) return attempt_failed(dial, socket.error().message, refused);
  if (const Status same = os::check_same_user(*socket); !same.ok()) return of_another_user(dial, same.error());
  return shake_hands(dial, std::move(*socket));
}

Status Dialler::begin_tcp(Dial& dial) {
  auto socket = os::begin_connect_tcp(dial.target.addresses[dial.address], dial.target.port);
  if (!socket) return attempt_failed(dial, socket.error().message, os::was_refused(socket.error()));
  dial.connecting = std::move(*socket);
  dial.due = saturating_add(clock_.now(), kConnectLimit);
  return poller_.watch(dial.connecting.get(), token_of(dial.target), true);
}

Status Dialler::ready(std::uint64_t index, bool writable) {
  const auto found = dials_.find(index);
  if (found == dials_.end()) return {};
  Dial& dial = found->second;
  if (dial.handshake) return advance(dial);
  if (!dial.connecting.valid() || !writable) return {};
  const auto connected = os::end_connect_tcp(dial.connecting);
  if (connected.ok()) return shake_hands(dial, std::move(dial.connecting));
  return attempt_failed(dial, connected.error().message, os::was_refused(connected.error()));
}

Status Dialler::shake_hands(Dial& dial, os::Fd socket) {
  const DialTarget& target = dial.target;
  PeerSocket peer{target.rank, dial.kind, std::move(socket), dial.confirm, target.index, target.count};
  dial.handshake.emplace(own_, policy_, secrets_, std::move(peer));
  dial.due = saturating_add(clock_.now(), kHandshakeLimit);
  QCCL_TRY(poller_.watch(dial.handshake->socket().get(), token_of(dial.target)));
  return advance(dial);
}

// After the handshake on a unix socket, continues with TCP.
Status Dialler::advance(Dial& dial) {
  const Result<bool> done = dial.handshake->advance();
  if (!done) return attempt_failed(dial, done.error().message, false);
  if (!done.value()) return {};
  poller_.forget(dial.handshake->socket().get());
  peers_.push_back(dial.handshake->take());
  dial.handshake.reset();
  if (dial.kind == SocketKind::tcp || dial.target.local_only) {
    if (dial.target.index == 0) dial_others(dial, peers_.back().count);
    dials_.erase(dial_index(dial.target));
    return {};
  }
  dial.kind = SocketKind::tcp;
  dial.confirm = ConfirmByte::beside_local;
  return begin_tcp(dial);
}

// The other TCP connections of the two ranks, at the address that has answered.
void Dialler::dial_others(const Dial& first, std::uint16_t count) {
  if (first.kind != SocketKind::tcp) return;
  DialTarget other{.rank = first.target.rank,
                   .addresses = {first.target.addresses[first.address]},
                   .port = first.target.port,
                   .count = count};
  while (++other.index < count) add(other);
}

Status Dialler::attempt_failed(Dial& dial, const std::string& reason, bool refused) {
  dial.connecting.reset();
  dial.handshake.reset();
  dial.reason = location_of(dial.target, dial.kind, dial.address) + ": " + reason;
  dial.other_than_refused |= !refused;
  if (dial.kind == SocketKind::tcp && dial.address + 1 < dial.target.addresses.size()) {
    ++dial.address;
    dial.due = clock_.now();
    return {};
  }
  return end_of_round(dial);
}

// All addresses have been tried: wait before the next round, unless all have refused for too long.
Status Dialler::end_of_round(Dial& dial) {
  const TimePoint now = clock_.now();
  const bool all_refused = !std::exchange(dial.other_than_refused, false);
  if (!all_refused) dial.refused_since.reset();
  if (all_refused && !dial.refused_since) dial.refused_since = now;
  if (all_refused && now - *dial.refused_since >= kRefusedLimit) return gone(dial);
  dial.address = 0;
  dial.due = saturating_add(now, dial.delay);
  dial.delay = std::min(2 * dial.delay, kLastDelay);
  return {};
}

Failure Dialler::gone(const Dial& dial) {
  const char* cause = dial.kind == SocketKind::local
                          ? "it has ended, or is in another container, which shared memory does not reach (set "
                            "QCCL_TRANSPORT to auto)"
                          : "it has ended, or a firewall is in between; QCCL_SOCKET_IFNAME chooses the interface";
  return failure_about(ErrorKind::peer_lost, dial.target.rank,
                       fmt::format("rank {} can't be reached at {}: {}", dial.target.rank, dial.reason, cause));
}

// Does not try TCP, which would reach the same process: no other user of this host belongs to the job.
Failure Dialler::of_another_user(const Dial& dial, const ErrorInfo& cause) {
  return failure_about(cause.kind, dial.target.rank,
                       fmt::format("rank {} is refused: {}; start all ranks as one user, unless a stranger left this "
                                   "address in the store",
                                   dial.target.rank, cause.message));
}

std::vector<std::string> Dialler::reasons() const {
  std::vector<std::string> all;
  for (const auto& [rank, dial] : dials_) {
    all.push_back(fmt::format("rank {} at {}", rank, dial.reason.empty() ? "its address: no answer yet" : dial.reason));
  }
  return all;
}

}  // namespace qccl::bootstrap
