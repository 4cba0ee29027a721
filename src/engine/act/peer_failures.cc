#include "engine/act/peer_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace qccl::engine {
namespace {

using wire::FrameKind;

double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// The kind that a line of a control frame names.
std::optional<ErrorKind> kind_in(std::string_view line) {
  const auto kind = parse_number<unsigned>(line);
  if (!kind || *kind > static_cast<unsigned>(ErrorKind::unsupported)) return std::nullopt;
  return static_cast<ErrorKind>(*kind);
}

// On a slow path seconds may pass between slices.
constexpr Nanoseconds kMovedRecently = std::chrono::seconds(5);

constexpr std::string_view kLeft = "left the job (closed its communicator or exited)";

}  // namespace

bool PeerFailures::look_for_losses() {
  for (const auto& loss : peers_.poll(transport_, clock_.now())) {
    const std::string what = "was lost: " + loss.cause;
    if (loss.end == Transport::End::faulty) {
      give_up(loss.peer, ErrorKind::peer_lost, what);
    } else {
      lose({loss.peer, loss.grade, ErrorKind::peer_lost, what});
    }
  }
  return peers_.sees_losses();
}

void PeerFailures::lose(const Loss& loss, bool tell_others) {
  const auto& [peer, grade, kind, what] = loss;
  if (!peers_.lose(peer, grade, what)) return;
  if (peers_[peer].departed) return;  // it had said goodbye
  for (auto& [id, group] : groups_) {
    if (group->group_rank(peer).is_none() || group->failure) continue;
    const Operation* const hit = operations_.oldest(*group);
    if (hit == nullptr) {
      failures_.fail(*group, failures_.group_error(*group, kind, peer, fmt::format("rank {} {}", peer, what)),
                     tell_others);
      continue;
    }
    failures_.fail(*hit, kind, fmt::format("rank {} {} ({})", peer, what, hit->waiting().progress()), peer,
                   tell_others);
  }
}

void PeerFailures::give_up(WorldRank peer, ErrorKind kind, const std::string& what) {
  if (peers_[peer].lost) return;
  control_.queue(peer, {.kind = FrameKind::given_up},
                 fmt::format("{}\n{}", static_cast<int>(kind), what.substr(0, kMaxPoisonText)));
  lose({peer, LossGrade::silent, kind, what});
  control_.send();
}

// Payload: kind, and why the peer gave this rank up, a line each. The peer tells the others; told by this rank, they
// would blame the peer.
void PeerFailures::on_given_up(WorldRank peer, ConstBytes payload) {
  const std::string_view text = as_text(payload);
  const auto end = text.find('\n');
  const std::string_view reason = end == std::string_view::npos ? "does not say why" : text.substr(end + 1);
  const ErrorKind kind = kind_in(text.substr(0, end)).value_or(ErrorKind::peer_lost);
  lose({peer, LossGrade::silent, kind, fmt::format("gave this rank up: it {}", reason)}, false);
  transport_.disconnect(peer);
  peers_.end(peer);
}

void PeerFailures::on_goodbye(WorldRank peer) {
  peers_.depart(peer);
  for (const auto& operation : operations_) {
    if (operation == nullptr) continue;
    const GroupRank member = operation->group().group_rank(peer);
    if (member.is_none() || !operation->lacks(member)) continue;
    const auto what =
        fmt::format("rank {} {} before it did its part ({})", peer, kLeft, operation->waiting().progress());
    failures_.fail(*operation, ErrorKind::peer_lost, what, peer);
  }
}

// A member that is gone may have done its part: a broadcast's root leaves without waiting for the others.
void PeerFailures::look_for_absent(Operation& operation) {
  Group& owner = operation.group();
  for (GroupRank member(0); member.value() < owner.world(); ++member) {
    const WorldRank peer = owner.world_rank(member);
    const PeerMonitor::Peer& state = peers_[peer];
    if ((!state.departed && !state.lost) || !operation.lacks(member)) continue;
    const auto what =
        fmt::format("rank {} can't take part, it {}", peer, state.departed ? kLeft : std::string_view(state.what));
    return failures_.fail(operation, ErrorKind::peer_lost, what, peer);
  }
}

// Payload: kind, blamed rank and message, a line each.
void PeerFailures::on_poison(Group& group, WorldRank peer, ConstBytes payload) {
  const std::string_view text = as_text(payload);
  const auto first = text.find('\n');
  const auto second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  ErrorInfo failure = failures_.group_error(group, ErrorKind::aborted, peer, fmt::format("rank {} failed", peer));
  if (second != std::string_view::npos) {
    failure.kind = kind_in(text.substr(0, first)).value_or(failure.kind);
    failure.peer = parse_number<int>(text.substr(first + 1, second - first - 1)).value_or(peer.value());
    if (failure.peer < -1 || failure.peer >= options_.world) failure.peer = peer.value();
    failure.message = fmt::format("QCCL rank {}, group '{}': rank {} reports: {}", options_.rank, group.name, peer,
                                  text.substr(second + 1));
  }
  if (group.failure) return;
  failures_.fail(group, std::move(failure), false);
  // Passed on, so that no peer sees this rank leave without the reason.
  control_.queue_for_all(group.ranks, {.kind = FrameKind::poison, .group = group.id}, text);
}

void PeerFailures::check_deadlines() {
  operations_.set_next_deadline(kForever);
  for (const auto& operation : operations_) {
    if (clock_.now() < operation->deadline()) {
      operations_.note_deadline(operation->deadline());
      continue;
    }
    miss_deadline(*operation);
  }
}

// A call that still moves has a slow path, or too little time. Its rate counts from its start, because it may move in
// bursts.
void PeerFailures::miss_deadline(const Operation& operation) {
  const Group& owner = operation.group();
  const Nanoseconds timeout = operation.arguments().timeout;
  if (const DevicePart* const device = operation.device(); device != nullptr && !device->runs()) {
    return failures_.fail(operation, ErrorKind::deadline_exceeded,
                          fmt::format("the deadline of {:.3g} s passed while this rank waited for {}", seconds(timeout),
                                      device->awaited()),
                          options_.rank);
  }
  const Waiting waiting = operation.waiting();
  const std::vector<GroupRank> blamed = peers_.suspects(owner, waiting.peers, clock_.now());
  std::string state = waiting.progress();
  std::string reason = "stopped, too slow, not in this call, or waiting for another itself";
  if (still_moves(operation, blamed)) {
    const std::uint64_t bytes = waiting.expected_bytes > 0 ? waiting.received_bytes : operation.plain_bytes();
    state += fmt::format(", moving at {}", rate_text(bytes, timeout + (clock_.now() - operation.deadline())));
    reason = "a slow path, or too little time: give the call a longer timeout, or compress it";
  }
  const std::string what = fmt::format("the deadline of {:.3g} s passed while waiting for {} ({}): {}",
                                       seconds(timeout), owner.rank_list(blamed), state, reason);
  failures_.fail(operation, ErrorKind::deadline_exceeded, what,
                 blamed.empty() ? WorldRank() : owner.world_rank(blamed.front()));
}

// Whether data moved not long before the deadline, and those that are waited for live.
bool PeerFailures::still_moves(const Operation& operation, const std::vector<GroupRank>& awaited) const {
  const Nanoseconds recently = std::min(operation.arguments().timeout / 4, kMovedRecently);
  if (operation.last_moved() < operation.deadline() - recently) return false;
  return std::ranges::none_of(
      awaited, [&](GroupRank member) { return peers_.is_silent(operation.group().world_rank(member), clock_.now()); });
}

// Gives up the peers that an operation waits for and that have sent nothing for peer_timeout.
void PeerFailures::check_silent_peers() {
  if (!peers_.any_is_silent(clock_.now())) return;  // without taking memory
  std::vector<std::pair<WorldRank, Nanoseconds>> silent;
  for (const auto& operation : operations_) {
    for (const GroupRank member : operation->waiting().peers) {
      const WorldRank peer = operation->group().world_rank(member);
      const Nanoseconds silence = peers_.silence(peer, clock_.now());
      if (silence >= options_.peer_timeout) silent.emplace_back(peer, silence);
    }
  }
  for (const auto& [peer, silence] : silent) {
    give_up(peer, ErrorKind::peer_lost,
            fmt::format("was lost: silent for {:.3g} s: stopped or unreachable", seconds(silence)));
  }
}

}  // namespace qccl::engine
