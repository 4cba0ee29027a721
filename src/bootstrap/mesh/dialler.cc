#include "bootstrap/mesh/dialler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "os/net/dial.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

constexpr Nanoseconds kFirstDelay = std::chrono::milliseconds(5);
constexpr Nanoseconds kLastDelay = std::chrono::milliseconds(250);

std::string place_of(const DialTarget& target, LinkKind leg, std::size_t address) {
  return leg == LinkKind::local ? "unix socket @" + target.unix_name
                                : os::address_text(target.addresses[address], target.port);
}

}  // namespace

void Dialler::add(DialTarget target) {
  Dial& dial = dials_[target.rank];
  dial.leg = target.unix_name.empty() ? LinkKind::tcp : LinkKind::local;
  dial.delay = kFirstDelay;
  dial.due = clock_.now();
  dial.target = std::move(target);
}

Status Dialler::turn() {
  for (auto& [rank, dial] : dials_) {
    if (clock_.now() < dial.due) continue;
    if (dial.stage == Stage::resting) {
      QCCL_TRY(begin(dial));
    } else {
      const char* what = dial.stage == Stage::connecting ? "no answer" : "connected, but no handshake";
      QCCL_TRY(attempt_failed(dial, what, false));
    }
  }
  return {};
}

TimePoint Dialler::next_turn() const {
  TimePoint next = kForever;
  for (const auto& [rank, dial] : dials_) next = std::min(next, dial.due);
  return next;
}

Status Dialler::begin(Dial& dial) { return dial.leg == LinkKind::local ? begin_local(dial) : begin_tcp(dial); }

Status Dialler::begin_local(Dial& dial) {
  auto socket = os::connect_unix_abstract(dial.target.unix_name);
  if (!socket && socket.error().kind == ErrorKind::peer_lost && !dial.target.local_only) {
    // The same kernel but another network namespace counts as another host.
    dial.leg = LinkKind::tcp;
    return begin_tcp(dial);
  }
  if (!socket) return attempt_failed(dial, socket.error().message, socket.error().kind == ErrorKind::peer_lost);
  if (const Status same = os::check_same_user(*socket); !same.ok()) return of_another_user(dial, same.error());
  dial.socket = std::move(*socket);
  return greet(dial);
}

Status Dialler::begin_tcp(Dial& dial) {
  auto socket = os::begin_connect_tcp(dial.target.addresses[dial.address], dial.target.port);
  if (!socket) return attempt_failed(dial, socket.error().message, socket.error().kind == ErrorKind::peer_lost);
  dial.socket = std::move(*socket);
  dial.stage = Stage::connecting;
  dial.due = saturating_add(clock_.now(), kConnectLimit);
  const auto rank = static_cast<std::uint64_t>(dial.target.rank);
  return poller_.watch(dial.socket.get(), socket_token(SocketOwner::dialler, rank), true);
}

Status Dialler::ready(int rank, bool writable) {
  const auto found = dials_.find(rank);
  if (found == dials_.end()) return {};
  Dial& dial = found->second;
  if (dial.stage == Stage::greeting) return read_answer(dial);
  if (dial.stage != Stage::connecting || !writable) return {};
  const auto connected = os::end_connect_tcp(dial.socket);
  if (connected.ok()) return greet(dial);
  return attempt_failed(dial, connected.error().message, connected.error().kind == ErrorKind::peer_lost);
}

Status Dialler::greet(Dial& dial) {
  wire::Hello hello = own_;
  hello.target = static_cast<std::uint32_t>(dial.target.rank);
  if (!send_hello(dial.socket, hello)) return attempt_failed(dial, "connection lost before the handshake", false);
  dial.stage = Stage::greeting;
  dial.hello = HelloReader();
  dial.due = saturating_add(clock_.now(), kHandshakeLimit);
  const auto rank = static_cast<std::uint64_t>(dial.target.rank);
  return poller_.watch(dial.socket.get(), socket_token(SocketOwner::dialler, rank));
}

Status Dialler::read_answer(Dial& dial) {
  const os::IoResult io = dial.hello.read(dial.socket);
  if (io.lost()) return attempt_failed(dial, "it " + os::describe(io) + " during the handshake", false);
  if (!dial.hello.complete()) return {};
  auto hello = wire::decode_hello(dial.hello.bytes());
  if (!hello) return attempt_failed(dial, hello.error().message, false);
  const auto fits = wire::check_hello(own_, *hello);
  if (!fits.ok()) return attempt_failed(dial, fits.error().message, false);
  if (static_cast<int>(hello->rank) != dial.target.rank)
    return attempt_failed(dial, "another rank answers there", false);
  return finish(dial);
}

// The handshake is complete: continue with TCP after the unix socket, or finish.
Status Dialler::finish(Dial& dial) {
  const auto confirm = static_cast<std::byte>(dial.confirm);
  if (os::write_some(dial.socket.get(), ConstBytes(&confirm, 1)).bytes != 1) {
    return attempt_failed(dial, "connection lost at the end of the handshake", false);
  }
  poller_.forget(dial.socket.get());
  links_.push_back({dial.target.rank, dial.leg, std::move(dial.socket), dial.confirm});
  if (dial.leg == LinkKind::tcp || dial.target.local_only) {
    const int rank = dial.target.rank;
    dials_.erase(rank);
    return {};
  }
  dial.leg = LinkKind::tcp;
  dial.confirm = ConfirmByte::beside_local;
  return begin_tcp(dial);
}

Status Dialler::attempt_failed(Dial& dial, const std::string& reason, bool refused) {
  dial.socket.reset();
  dial.stage = Stage::resting;
  dial.reason = place_of(dial.target, dial.leg, dial.address) + ": " + reason;
  dial.other_than_refused |= !refused;
  if (dial.leg == LinkKind::tcp && dial.address + 1 < dial.target.addresses.size()) {
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

Failure Dialler::gone(const Dial& dial) const {
  const bool local = dial.leg == LinkKind::local;
  Failure failure(ErrorKind::peer_lost,
                  fmt::format("rank {} can't be reached at {}: {}", dial.target.rank, dial.reason,
                              local ? "it has ended, or is in another container, which shared memory does not reach "
                                      "(set QCCL_TRANSPORT to auto)"
                                    : "it has ended, or a firewall is in between; QCCL_SOCKET_IFNAME chooses the "
                                      "interface"));
  failure.info().peer = dial.target.rank;
  return failure;
}

// Does not try TCP, which would reach the same process: no other user of this host belongs to the job.
Failure Dialler::of_another_user(const Dial& dial, const ErrorInfo& cause) const {
  Failure failure(
      cause.kind,
      fmt::format("rank {} is refused: {}; start all ranks as one user, unless a stranger left this address "
                  "in the store",
                  dial.target.rank, cause.message));
  failure.info().peer = dial.target.rank;
  return failure;
}

std::vector<Link> Dialler::take_links() { return std::exchange(links_, {}); }

std::vector<std::string> Dialler::reasons() const {
  std::vector<std::string> all;
  for (const auto& [rank, dial] : dials_) {
    all.push_back(fmt::format("rank {} at {}", rank, dial.reason.empty() ? "its address: no answer yet" : dial.reason));
  }
  return all;
}

}  // namespace qccl::bootstrap
