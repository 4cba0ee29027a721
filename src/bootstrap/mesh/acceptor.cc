#include "bootstrap/mesh/acceptor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint64_t kTcpListener = 0;
constexpr std::uint64_t kLocalListener = 1;
constexpr std::uint64_t kFirstPending = 2;
constexpr int kAcceptsPerTurn = 64;  // then connected peers are served
constexpr std::uint64_t kFewestPending = 16;

}  // namespace

Result<std::uint16_t> Acceptor::listen_tcp(const std::string& address) {
  QCCL_ASSIGN(tcp_listener_, os::listen_tcp(address, 0));
  return os::local_port(tcp_listener_);
}

Result<std::string> Acceptor::listen_local() {
  const std::string name = fmt::format("qccl-{:016x}{:016x}", os::random_nonce(), os::random_nonce());
  QCCL_ASSIGN(local_listener_, os::listen_unix_abstract(name));
  return name;
}

Status Acceptor::start(const wire::Hello& own) {
  own_ = own;
  next_id_ = kFirstPending;
  max_pending_ =
      static_cast<std::size_t>(std::clamp<std::uint64_t>(os::spare_files() / 4, kFewestPending, kMaxPending));
  if (tcp_listener_.valid()) {
    QCCL_TRY(poller_.watch(tcp_listener_.get(), socket_token(SocketOwner::acceptor, kTcpListener)));
  }
  if (local_listener_.valid()) {
    QCCL_TRY(poller_.watch(local_listener_.get(), socket_token(SocketOwner::acceptor, kLocalListener)));
  }
  return {};
}

Status Acceptor::ready(std::uint64_t index) {
  if (index == kTcpListener) return accept_waiting(tcp_listener_, SocketKind::tcp);
  if (index == kLocalListener) return accept_waiting(local_listener_, SocketKind::local);
  serve(index);
  return {};
}

Status Acceptor::accept_waiting(const os::Fd& listener, SocketKind kind) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = os::accept_connection(listener);
    if (!accepted && pending_.empty()) return accepted.failure();
    if (!accepted) {
      pending_.erase(pending_.begin());
      continue;
    }
    if (!*accepted) return {};
    welcome(std::move(**accepted), kind);
  }
  return {};
}

// A rank's connection brings its Hello along, so serve it at once: only strangers stay pending.
void Acceptor::welcome(os::Fd socket, SocketKind kind) {
  const std::uint64_t id = next_id_++;
  if (kind == SocketKind::local && !is_of_this_user(socket)) return;
  if (kind == SocketKind::tcp && !os::set_no_delay(socket)) return;
  if (!poller_.watch(socket.get(), socket_token(SocketOwner::acceptor, id))) return;
  pending_.emplace(
      id, Pending{Handshake(own_, {-1, kind, std::move(socket)}), saturating_add(clock_.now(), kHandshakeLimit)});
  serve(id);
  if (pending_.size() > max_pending_) pending_.erase(pending_.begin());
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
  Handshake& handshake = found->second.handshake;
  const Result<bool> done = handshake.advance();
  if (done && !done.value()) return;
  if (done) {
    poller_.forget(handshake.socket().get());
    peers_.push_back(handshake.take());
  } else if (done.error().kind == ErrorKind::misuse || done.error().kind == ErrorKind::unsupported) {
    log(LogLevel::info, "dropped a connection: " + done.error().message);
  }
  pending_.erase(found);
}

void Acceptor::expire() {
  while (!pending_.empty() && pending_.begin()->second.deadline <= clock_.now()) pending_.erase(pending_.begin());
}

}  // namespace qccl::bootstrap
