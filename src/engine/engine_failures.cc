// The part of Engine that deals with what goes wrong: lost and silent peers, missed deadlines,
// poison, and calls that differ between ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "engine/engine.h"

namespace qccl::engine {
namespace {

using wire::FrameHeader;
using wire::FrameKind;

std::string_view as_text(ConstBytes payload) { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }

double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// The kind that a line of a note names.
std::optional<ErrorKind> kind_in(std::string_view line) {
  const int kind = std::atoi(std::string(line).c_str());
  if (kind < 0 || kind > static_cast<int>(ErrorKind::unsupported)) return std::nullopt;
  return static_cast<ErrorKind>(kind);
}

std::string rank_list(const Group& group, const std::vector<int>& members) {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(group.world_rank(member));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string progress_text(const Waiting& waiting) {
  return fmt::format("got {} of {} bytes", waiting.received_bytes, waiting.expected_bytes);
}

}  // namespace

std::vector<std::string> Engine::describe_in_flight(std::uint64_t id) const {
  std::vector<std::string> list;
  for (const auto& operation : operations_) {
    if (operation == nullptr || operation->group().id != id) continue;
    const Waiting waiting = operation->waiting();
    const std::vector<int> peers = peers_.suspects(operation->group(), waiting.peers, now_);
    list.push_back(fmt::format("{} #{} waits for {} ({})", operation->describe(), operation->sequence(),
                               peers.empty() ? "nobody" : rank_list(operation->group(), peers),
                               progress_text(waiting)));
  }
  return list;
}

std::optional<ErrorInfo> Engine::given_up(const internal::WorkState& work, Milliseconds waited) const {
  const auto found = std::find_if(operations_.begin(), operations_.end(), [&](const auto& operation) {
    return operation != nullptr && operation->work() != nullptr && operation->work()->is_part_of(work);
  });
  if (found == operations_.end()) return std::nullopt;
  const Operation& operation = **found;
  const Waiting waiting = operation.waiting();
  const std::vector<int> peers = peers_.suspects(operation.group(), waiting.peers, now_);
  const std::string awaited = peers.empty() ? "" : ", waiting for " + rank_list(operation.group(), peers);
  return failure_of(operation, ErrorKind::deadline_exceeded,
                    fmt::format("did not end within the {} ms that wait() was given{} ({}); it goes on", waited.count(),
                                awaited, progress_text(waiting)));
}

// ---- peers

bool Engine::look_for_losses() {
  for (const auto& loss : peers_.poll(transport_)) {
    lose_peer(loss.peer, ErrorKind::peer_lost, "was lost: " + loss.cause);
  }
  return peers_.sees_losses();
}

void Engine::lose_peer(int peer, ErrorKind kind, const std::string& what, bool tell_others) {
  if (!peers_.lose(peer, what)) return;
  if (peers_[peer].departed) return;  // it had said goodbye
  for (auto& [id, group] : groups_) {
    if (group->index_of[static_cast<std::size_t>(peer)] < 0 || group->failure) continue;
    const auto hit = std::find_if(operations_.begin(), operations_.end(), [&](const auto& operation) {
      return operation != nullptr && &operation->group() == group.get();
    });
    if (hit == operations_.end()) {
      set_failure(*group, group_error(*group, kind, peer, fmt::format("rank {} {}", peer, what)), tell_others);
      continue;
    }
    ErrorInfo failure =
        failure_of(**hit, kind, fmt::format("rank {} {} ({})", peer, what, progress_text((*hit)->waiting())));
    failure.peer = peer;
    set_failure(*group, std::move(failure), tell_others);
  }
}

void Engine::give_up(int peer, ErrorKind kind, const std::string& what) {
  if (peers_[peer].lost) return;
  control_.queue(peer, {.kind = FrameKind::given_up},
             fmt::format("{}\n{}", static_cast<int>(kind), what.substr(0, kMaxPoisonText)));
  lose_peer(peer, kind, what);
  control_.send();
}

// Payload: kind, and what became of this rank in the peer's eyes, a line each. The peer tells the others: they would
// blame the peer if they heard of this from here.
void Engine::on_given_up(int peer, ConstBytes payload) {
  const std::string_view text = as_text(payload);
  const auto end = text.find('\n');
  const std::string_view reason = end == std::string_view::npos ? "does not say why" : text.substr(end + 1);
  lose_peer(peer, kind_in(text.substr(0, end)).value_or(ErrorKind::peer_lost),
            fmt::format("gave this rank up: it {}", reason), false);
  transport_.disconnect(peer);
}

void Engine::on_goodbye(int peer) {
  peers_.depart(peer);
  for (const auto& operation : operations_) {
    if (operation == nullptr) continue;
    const Group& owner = operation->group();
    const int member = owner.index_of[static_cast<std::size_t>(peer)];
    if (member < 0 || !operation->lacks(member)) continue;
    ErrorInfo failure = failure_of(*operation, ErrorKind::peer_lost,
                                   fmt::format("rank {} left the job (closed its communicator or exited) before it "
                                               "did its part ({})",
                                               peer, progress_text(operation->waiting())));
    failure.peer = peer;
    set_failure(*group(owner.id), std::move(failure), true);
  }
}

// A member that is gone may have done its part: a broadcast's root leaves without waiting for anybody.
void Engine::look_for_absent(Operation& operation) {
  const Group& owner = operation.group();
  for (int member = 0; member < owner.world(); ++member) {
    const int peer = owner.world_rank(member);
    const PeerMonitor::Peer& state = peers_[peer];
    if ((!state.departed && !state.lost) || !operation.lacks(member)) continue;
    const std::string how = state.departed ? "left the job (closed its communicator or exited)" : state.what;
    ErrorInfo failure =
        failure_of(operation, ErrorKind::peer_lost, fmt::format("rank {} can't take part, it {}", peer, how));
    failure.peer = peer;
    return set_failure(*group(owner.id), std::move(failure), true);
  }
}

// Payload: kind, blamed rank and message, a line each.
void Engine::on_poison(Group& group, int peer, ConstBytes payload) {
  const std::string_view text = as_text(payload);
  const auto first = text.find('\n');
  const auto second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  ErrorInfo failure = group_error(group, ErrorKind::aborted, peer, fmt::format("rank {} failed", peer));
  if (second != std::string_view::npos) {
    failure.kind = kind_in(text.substr(0, first)).value_or(failure.kind);
    failure.peer = std::atoi(std::string(text.substr(first + 1, second - first - 1)).c_str());
    if (failure.peer < -1 || failure.peer >= options_.world) failure.peer = peer;
    failure.message = fmt::format("QCCL rank {}, group '{}': rank {} reports: {}", options_.rank, group.name, peer,
                                  text.substr(second + 1));
  }
  if (group.failure) return;
  set_failure(group, std::move(failure), false);
  // Passed on, so that nobody sees this rank leave without knowing why.
  poison_peers(group, text);
}

// ---- time

TimePoint Engine::next_timer() const {
  TimePoint next = std::min({next_deadline_, peers_.next_heartbeat(), transport_.next_send_time()});
  for (const Mismatch& mismatch : mismatches_) next = std::min(next, mismatch.deadline);
  return next;
}

void Engine::check_timers() {
  if (!mismatches_.empty()) check_mismatches();
  if (now_ >= next_deadline_) check_deadlines();
  if (now_ < peers_.next_heartbeat()) return;
  peers_.beat(frame_sender_, now_);
  check_silent_peers();
}

void Engine::check_deadlines() {
  next_deadline_ = kForever;
  for (const auto& operation : operations_) {
    if (now_ < operation->deadline()) {
      next_deadline_ = std::min(next_deadline_, operation->deadline());
      continue;
    }
    const Group& owner = operation->group();
    const Waiting waiting = operation->waiting();
    const std::vector<int> blamed = peers_.suspects(owner, waiting.peers, now_);
    const std::string what = fmt::format(
        "the deadline of {:.3g} s passed while waiting for {} ({}): stopped, too slow, not in this call, or "
        "waiting for another itself",
        seconds(operation->timeout()), rank_list(owner, blamed), progress_text(waiting));
    ErrorInfo failure = failure_of(*operation, ErrorKind::deadline_exceeded, what);
    if (!blamed.empty()) failure.peer = owner.world_rank(blamed.front());
    set_failure(*group(owner.id), std::move(failure), true);
  }
}

// A peer that an operation waits for and that has said nothing at all for peer_timeout.
void Engine::check_silent_peers() {
  if (!peers_.any_is_silent(now_)) return;
  std::vector<std::pair<int, Nanoseconds>> silent;
  for (const auto& operation : operations_) {
    for (const int member : operation->waiting().peers) {
      const int peer = operation->group().world_rank(member);
      const Nanoseconds silence = peers_.silence(peer, now_);
      if (silence >= options_.peer_timeout) silent.emplace_back(peer, silence);
    }
  }
  for (const auto& [peer, silence] : silent) {
    give_up(peer, ErrorKind::peer_lost,
            fmt::format("was lost: silent for {:.3g} s: stopped or unreachable", seconds(silence)));
  }
}

// ---- calls that differ

Mismatch* Engine::begin_mismatch(Group& group, std::uint64_t sequence) {
  for (Mismatch& mismatch : mismatches_) {
    if (mismatch.group == group.id && mismatch.sequence == sequence) return &mismatch;
  }
  const auto own = own_call(group, sequence);
  if (!own || group.failure) return nullptr;
  Mismatch mismatch;
  mismatch.group = group.id;
  mismatch.sequence = sequence;
  mismatch.deadline = saturating_add(now_, kMismatchPatience);
  mismatch.ranks = group.ranks;
  mismatch.notes.resize(group.ranks.size());
  const std::string description = own->call->describe().substr(0, kMaxDescriptionBytes);
  mismatch.notes[static_cast<std::size_t>(group.rank)] = CallReport{own->fingerprint, description};
  FrameHeader header{.kind = FrameKind::fingerprint, .group = group.id, .sequence = sequence};
  header.fingerprint = own->fingerprint;
  for (const int rank : group.ranks) {
    if (rank != options_.rank) control_.queue(rank, header, description);
  }
  mismatches_.push_back(std::move(mismatch));
  return &mismatches_.back();
}

void Engine::on_fingerprint(Group& group, const FrameHeader& header, int peer, ConstBytes payload) {
  Mismatch* mismatch = begin_mismatch(group, header.sequence);
  if (mismatch == nullptr) return;
  const auto member = static_cast<std::size_t>(group.index_of[static_cast<std::size_t>(peer)]);
  mismatch->notes[member] =
      CallReport{header.fingerprint, std::string(as_text(payload).substr(0, kMaxDescriptionBytes))};
}

void Engine::check_mismatches() {
  for (const Mismatch& mismatch : mismatches_) {
    Group* owner = group(mismatch.group);
    if (owner == nullptr || (!mismatch.complete() && now_ < mismatch.deadline)) continue;
    const std::string what = fmt::format(
        "operation #{} differs between ranks: {}. Every rank must make the same calls of a group in the same order",
        mismatch.sequence, mismatch.explain());
    ErrorInfo failure = group_error(*owner, ErrorKind::misuse, mismatch.minority_rank(), what);
    failure.sequence = mismatch.sequence;
    set_failure(*owner, std::move(failure), true);
  }
  std::erase_if(mismatches_, [this](const Mismatch& mismatch) {
    const Group* owner = group(mismatch.group);
    return owner == nullptr || owner->failure != nullptr;
  });
}

}  // namespace qccl::engine
