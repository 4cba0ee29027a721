// The agreements of a group's members over a small network in memory, with faults at any frame, for tests. Time is
// virtual; a frame travels for a seeded time, in order for each pair.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "engine/shrink/agreement.h"

namespace qccl::engine::testing {

inline constexpr Nanoseconds kPatience = std::chrono::seconds(1);
inline constexpr Nanoseconds kDeadline = std::chrono::seconds(20);

struct MeshFrame {
  TimePoint arrival{};
  wire::MemberList message{};
  std::optional<LossGrade> loss{};  // not a message, but the end of the connection
};
struct MeshLink {
  std::deque<MeshFrame> frames;
  bool is_cut = false;
  bool has_ended = false;  // the receiver has seen that
};
struct MeshNode {
  Agreement agreement;
  bool is_dead = false;
  bool is_stopped = false;
  bool has_called = false;
  std::map<int, std::optional<LossGrade>> known{};  // connections that have ended
  std::optional<ShrinkVerdict> verdict{};
  bool is_running() const { return !is_dead && !is_stopped; }
  // The members that it believes to go on; empty if it does not know of any.
  MemberSet world() const { return verdict && verdict->ok() ? verdict->value() : MemberSet{}; }
};

class Mesh {
 public:
  Mesh(int members, std::uint64_t seed) : random_(seed), links_(static_cast<std::size_t>(members * members)) {
    for (int member = 0; member < members; ++member) {
      std::vector<int> ranks(static_cast<std::size_t>(members));
      std::iota(ranks.begin(), ranks.end(), 0);
      nodes_.push_back({Agreement(std::move(ranks), GroupRank(member), std::chrono::milliseconds(10))});
    }
  }

  int size() const { return static_cast<int>(nodes_.size()); }

  // Happens right before the frame of that number, from 0 over all ranks, is sent.
  void before_frame(int number, std::function<void()> fault) { faults_.emplace(number, std::move(fault)); }
  // The frame of that number does not arrive: its receiver had no memory for it.
  void drop_frame(int number) { dropped_.insert(number); }
  void at(Nanoseconds time, std::function<void()> event) { events_.emplace(now_ + time, std::move(event)); }

  void call(int member, const ShrinkTerms& terms) {
    MeshNode& node = this->node(member);
    if (!node.is_running()) return;
    node.verdict.reset();
    node.has_called = true;
    Losses losses(nodes_.size());
    for (int other = 0; other < size(); ++other) losses[static_cast<std::size_t>(other)] = node.known[other];
    node.agreement.enter(terms, losses, now_ + kDeadline, now_);
    pump(member);
  }

  // The peers see the end of its connections after what it has sent.
  void kill(int victim) {
    if (node(victim).is_dead) return;
    node(victim).is_dead = true;
    for (int peer = 0; peer < size(); ++peer) push(victim, peer, {.loss = LossGrade::gone});
  }
  void stop(int victim) {
    node(victim).is_stopped = true;
    for (int peer = 0; peer < size(); ++peer) miss(victim, peer);
  }
  void resume(int victim) { node(victim).is_stopped = false; }
  // What `from` sends no longer reaches `to`.
  void cut(int from, int to) {
    link(from, to).is_cut = true;
    miss(from, to);
  }
  // The connection breaks while both ends live: each gives the other up, or takes it for dead.
  void reset(int a, int b, LossGrade grade = LossGrade::silent) {
    push(a, b, {.loss = grade});
    push(b, a, {.loss = grade});
  }

  // Until nothing happens any more, or that much time has passed.
  void run(Nanoseconds limit = 2 * kDeadline) {
    const TimePoint end = now_ + limit;
    while (step(end)) {
    }
    now_ = std::max(now_, end);
  }

  MeshNode& node(int member) { return nodes_[static_cast<std::size_t>(member)]; }
  const MeshNode& node(int member) const { return nodes_[static_cast<std::size_t>(member)]; }
  int frames() const { return frames_; }

 private:
  MeshLink& link(int from, int to) { return links_[static_cast<std::size_t>(from * size() + to)]; }
  void push(int from, int to, MeshFrame frame) {
    MeshLink& way = link(from, to);
    if (from == to || way.is_cut) return;
    const auto travel = std::chrono::microseconds(20 + random_() % 200);
    frame.arrival = now_ + travel;
    if (!way.frames.empty()) frame.arrival = std::max(frame.arrival, way.frames.back().arrival);
    way.frames.push_back(std::move(frame));
  }

  // `to` hears nothing of `from` from now on, unless it goes on within the patience.
  void miss(int from, int to) {
    if (from == to) return;
    events_.emplace(now_ + kPatience, [this, from, to] {
      const bool is_silent = node(from).is_stopped || link(from, to).is_cut;
      if (!is_silent || !node(to).is_running() || link(from, to).has_ended) return;
      node(to).agreement.lose(GroupRank(from), LossGrade::silent, now_);
      pump(to);
    });
  }

  // Sends what the member has to send. It believes a commit once all of that has been sent.
  void pump(int member) {
    MeshNode& own = node(member);
    while (const auto* const next = own.agreement.outbox().front()) {
      const Outbox::Outgoing outgoing = *next;
      own.agreement.outbox().pop();
      const bool is_dropped = dropped_.contains(frames_);
      const auto [first, last] = faults_.equal_range(frames_++);
      for (auto fault = first; fault != last; ++fault) fault->second();
      if (!own.is_running()) return;
      if (!is_dropped) push(member, outgoing.to.value(), {.message = outgoing.message});
    }
    if (auto verdict = own.agreement.take_verdict()) own.verdict = std::move(verdict);
    if (own.agreement.chosen()) close_to_others(member, *own.agreement.chosen());
  }

  // A member that goes on gives up those that it leaves out.
  void close_to_others(int member, const MemberSet& world) {
    if (world[static_cast<std::size_t>(member)] == 0) return;
    for (int other = 0; other < size(); ++other) {
      if (world[static_cast<std::size_t>(other)] != 0 || link(other, member).has_ended) continue;
      link(other, member).has_ended = true;
      push(member, other, {.loss = LossGrade::silent});
    }
  }

  bool step(TimePoint end) {
    TimePoint next = events_.empty() ? kForever : events_.begin()->first;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        const auto& frames = link(from, to).frames;
        if (node(to).is_running() && !frames.empty()) next = std::min(next, frames.front().arrival);
      }
    }
    for (int member = 0; member < size(); ++member) {
      if (node(member).is_running()) next = std::min(next, node(member).agreement.next_timer());
    }
    if (next == kForever || next > end) return false;
    now_ = std::max(now_, next);
    while (!events_.empty() && events_.begin()->first <= now_) {
      const auto event = events_.extract(events_.begin());
      event.mapped()();
    }
    deliver_due();
    for (int member = 0; member < size(); ++member) {
      if (!node(member).is_running()) continue;
      node(member).agreement.advance(now_);
      pump(member);
    }
    return true;
  }

  void deliver_due() {
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        MeshLink& way = link(from, to);
        while (node(to).is_running() && !way.frames.empty() && way.frames.front().arrival <= now_) {
          const MeshFrame frame = std::move(way.frames.front());
          way.frames.pop_front();
          if (way.has_ended) continue;
          receive(from, to, frame);
        }
      }
    }
  }

  void receive(int from, int to, const MeshFrame& frame) {
    if (frame.loss) {
      link(from, to).has_ended = true;
      node(to).known[from] = frame.loss;
      node(to).agreement.lose(GroupRank(from), *frame.loss, now_);
    } else {
      node(to).agreement.receive(GroupRank(from), frame.message, now_);
    }
    pump(to);
  }

  std::mt19937_64 random_;
  TimePoint now_{};
  std::vector<MeshNode> nodes_;
  std::vector<MeshLink> links_;
  std::multimap<int, std::function<void()>> faults_;
  std::set<int> dropped_;
  std::multimap<TimePoint, std::function<void()>> events_;
  int frames_ = 0;
};

inline ShrinkTerms terms_of(const Mesh& mesh, const std::vector<int>& without = {}, bool any_quorum = false) {
  ShrinkTerms terms{MemberSet(static_cast<std::size_t>(mesh.size()), 0), any_quorum};
  for (const int member : without) terms.without[static_cast<std::size_t>(member)] = 1;
  return terms;
}

// All call that live and are not to be left out.
inline void call_all(Mesh& mesh, const ShrinkTerms& terms) {
  for (int member = 0; member < mesh.size(); ++member) {
    if (terms.without[static_cast<std::size_t>(member)] == 0) mesh.call(member, terms);
  }
}
inline void call_all(Mesh& mesh) { call_all(mesh, terms_of(mesh)); }

// All members of the world are dead.
inline bool has_ended(const Mesh& mesh, const MemberSet& world) {
  for (int member = 0; member < mesh.size(); ++member) {
    if (world[static_cast<std::size_t>(member)] != 0 && !mesh.node(member).is_dead) return false;
  }
  return true;
}

// What is wrong, or "".
inline std::string problem_of(const Mesh& mesh) {
  for (int member = 0; member < mesh.size(); ++member) {
    const MeshNode& node = mesh.node(member);
    if (node.has_called && node.is_running() && !node.verdict) return fmt::format("rank {} has no verdict", member);
    const MemberSet own = node.world();
    if (own.empty()) continue;
    if (own[static_cast<std::size_t>(member)] == 0) return fmt::format("rank {} is not in its own world", member);
    for (int other = 0; other < mesh.size(); ++other) {
      const MemberSet others = mesh.node(other).world();
      if (others.empty() || others == own || has_ended(mesh, own) || has_ended(mesh, others)) continue;
      return fmt::format("ranks {} and {} are in two worlds", member, other);
    }
  }
  return "";
}

}  // namespace qccl::engine::testing
