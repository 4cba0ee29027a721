// Ranks tell each other what they are doing, when one asks: a status_query frame to all peers, a status frame back. No
// other frame goes out for it, and nothing is kept between questions but which peers have not answered.
//
// Whoever drives the engine answers: a caller that waits, or the progress thread of a rank whose program is elsewhere.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/state/control_queue.h"
#include "engine/state/peer_monitor.h"

namespace qccl::engine {

// The answers to one question, which the engine adds and the asking thread awaits. Thread-safe.
class StatusAnswers {
 public:
  explicit StatusAnswers(std::size_t world) : texts_(world), is_expected_(world) {}

  void expect(WorldRank peer);
  // An answer; later ones of the same peer are ignored.
  void add(WorldRank peer, std::string text);
  // Waits until all expected answers are there, or for `patience`.
  void wait(Nanoseconds patience);
  // By world rank; empty: none.
  std::vector<std::string> take();

 private:
  std::mutex mutex_;
  std::condition_variable complete_;
  std::vector<std::string> texts_;
  std::vector<char> is_expected_;
  std::size_t missing_ = 0;
};

// One thread. The others outlive it.
class StatusExchange {
 public:
  // What this rank answers, made on the engine's thread.
  using Describe = std::function<std::string()>;

  StatusExchange(const PeerMonitor& peers, ControlQueue& control, WorldRank rank, int world)
      : peers_(peers), control_(control), rank_(rank), world_(static_cast<std::size_t>(world)) {}

  // Without it this rank does not answer.
  void describe_with(Describe describe) { describe_ = std::move(describe); }
  // Asks all peers that are neither lost nor have left. A peer that has yet to answer an earlier question is not asked
  // again: its next answer is the one to this.
  void ask(const std::shared_ptr<StatusAnswers>& answers);

  // Frames of a peer. Without memory for an answer there is none.
  void on_query(WorldRank peer);
  void on_status(WorldRank peer, ConstBytes payload);

 private:
  const PeerMonitor& peers_;
  ControlQueue& control_;
  const WorldRank rank_;
  const std::size_t world_;
  Describe describe_;
  std::vector<char> owes_answer_;  // by peer; empty until the first question
  std::vector<std::weak_ptr<StatusAnswers>> open_;
};

}  // namespace qccl::engine
