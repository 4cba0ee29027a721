#include "bootstrap/mesh/acceptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "os/limits.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint64_t kTcpListener = 0;
constexpr std::uint64_t kLocalListener = 1;
constexpr std::uint64_t kFirstPending = 2;
constexpr int kAcceptsPerTurn = 64;  // per turn; then connected peers are served
constexpr std::uint64_t kFewestPending = 16;

}  // namespace

Result<std::uint16_t> Acceptor::listen_tcp(const std::string& address) {
  auto listener = os::listen_tcp(address, 0);
  if (!listener) return listener.failure();
  tcp_listener_ = std::move(*listener);
  return os::local_port(tcp_listener_);
}

Result<std::string> Acceptor::listen_local() {
  const std::string name = fmt::format("qccl-{:016x}{:016x}", os::random_nonce(), os::random_nonce());
  auto listener = os::listen_unix_abstract(name);
  if (!listener) return listener.failure();
  local_listener_ = std::move(*listener);
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
  if (index == kTcpListener) return accept_waiting(tcp_listener_, LinkKind::tcp);
  if (index == kLocalListener) return accept_waiting(local_listener_, LinkKind::local);
  serve(index);
  return {};
}

Status Acceptor::accept_waiting(const os::Fd& listener, LinkKind kind) {
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
void Acceptor::welcome(os::Fd socket, LinkKind kind) {
  const std::uint64_t id = next_id_++;
  if (kind == LinkKind::local && !is_of_this_user(socket)) return;
  if (kind == LinkKind::tcp && !os::set_no_delay(socket)) return;
  if (!poller_.watch(socket.get(), socket_token(SocketOwner::acceptor, id))) return;
  Pending& pending = pending_[id];
  pending.socket = std::move(socket);
  pending.kind = kind;
  pending.deadline = saturating_add(clock_.now(), kHandshakeLimit);
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
  const Progress progress = advance(found->second);
  if (progress != Progress::waits) pending_.erase(found);
}

Acceptor::Progress Acceptor::advance(Pending& pending) {
  if (!pending.hello.complete()) {
    const os::IoResult io = pending.hello.read(pending.socket);
    if (io.lost()) return Progress::dropped;
    if (!pending.hello.complete()) return Progress::waits;
    if (!answer_hello(pending)) return Progress::dropped;
  }
  return read_confirmation(pending);
}

bool Acceptor::answer_hello(Pending& pending) {
  auto hello = wire::decode_hello(pending.hello.bytes());
  if (!hello) return false;
  const auto fits = wire::check_hello(own_, *hello);
  if (!fits.ok()) log(LogLevel::info, "dropped a connection: " + fits.error().message);
  if (!fits.ok() || hello->rank <= own_.rank) return false;
  pending.rank = static_cast<int>(hello->rank);
  wire::Hello answer = own_;
  answer.target = hello->rank;
  return send_hello(pending.socket, answer);
}

Acceptor::Progress Acceptor::read_confirmation(Pending& pending) {
  std::byte byte;
  const os::IoResult io = os::read_some(pending.socket.get(), Bytes(&byte, 1));
  if (io.would_block) return Progress::waits;
  const auto confirm = static_cast<ConfirmByte>(byte);
  if (io.lost() || (confirm != ConfirmByte::alone && confirm != ConfirmByte::beside_local)) return Progress::dropped;
  poller_.forget(pending.socket.get());
  links_.push_back({pending.rank, pending.kind, std::move(pending.socket), confirm});
  return Progress::complete;
}

void Acceptor::expire() {
  while (!pending_.empty() && pending_.begin()->second.deadline <= clock_.now()) pending_.erase(pending_.begin());
}

std::vector<Link> Acceptor::take_links() { return std::exchange(links_, {}); }

}  // namespace qccl::bootstrap
