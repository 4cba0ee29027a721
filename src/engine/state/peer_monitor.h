// What this rank knows about each peer (when it was heard, whether it was lost or has left), and what it tells peers
// besides data: heartbeats, poison, calls, reasons, goodbyes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/group.h"
#include "engine/state/line_capacity.h"
#include "engine/state/line_meter.h"
#include "qccl/failures.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

struct GradedLoss : Transport::PeerLoss {
  LossGrade grade = LossGrade::silent;
};

// One thread.
class PeerMonitor {
 public:
  struct Peer {
    TimePoint last_heard{};
    Nanoseconds round_trip{};  // measured; 0 on this host
    bool lost = false;
    bool gone = false;  // lost, and its connection has ended
    bool departed = false;
    LossGrade grade = LossGrade::silent;  // of a lost peer
    std::string what;                     // what happened to a lost peer: "was lost: end of file"

    // How it was lost, or that it has left; nothing otherwise.
    std::optional<LossGrade> loss() const {
      if (departed) return LossGrade::left;
      return lost ? std::optional(grade) : std::nullopt;
    }
  };

  // `rank`: this one.
  PeerMonitor(WorldRank rank, int world, Nanoseconds heartbeat_interval, Nanoseconds peer_timeout, TimePoint now);

  const Peer& operator[](WorldRank peer) const { return peers_[peer.index()]; }
  void heard(WorldRank peer, TimePoint now) { at(peer).last_heard = now; }
  void depart(WorldRank peer) { at(peer).departed = true; }
  // False if it was lost already; it may be certain only now.
  bool lose(WorldRank peer, LossGrade grade, const std::string& what);
  // A lost peer's connection has ended.
  void end(WorldRank peer) { at(peer).gone = true; }

  // The connections that had ended at the last call, and are known to be gone from now on; valid until the next call.
  // A loss counts one round after it was seen: if a rank ended because another had left, the other's goodbye, which is
  // the better reason, may still wait in its own connection.
  std::span<const GradedLoss> poll(Transport& transport, TimePoint now);
  // The last poll() saw connections end.
  bool sees_losses() const { return !losses_.empty(); }

  // Reads the round trips. beat() does it too: the first frames on a connection may have been slow.
  void measure(const Transport& transport);
  Nanoseconds longest_round_trip(const Group& group) const;
  Nanoseconds longest_round_trip() const;
  const LineMeter& line() const { return line_; }
  const LineCapacity& line_capacity() const { return capacity_; }
  // It loses packets by itself, not only where it is full.
  bool line_loses() const { return loses_; }
  // Samples the line to the distant peers. Call it from line().next() on.
  void measure_line(Transport& transport, TimePoint now);
  // Peers on other hosts that are neither lost nor have said goodbye.
  bool any_may_wait(const Transport& transport) const;

  // Nothing was heard of the peer for longer than two heartbeats and their way here may take.
  bool is_silent(WorldRank peer, TimePoint now) const;
  // The ranks to blame for a wait: the silent ones among the members waited for, the longest silent first, because
  // others may be kept waiting on a busy machine. If none of those is silent, the silent ones of the group, on which
  // they may wait in turn. If there are none either, all that are waited for.
  std::vector<GroupRank> suspects(const Group& group, const std::vector<GroupRank>& waited_for, TimePoint now) const;
  // Whether any peer has been silent for the peer timeout.
  bool any_is_silent(TimePoint now) const;
  Nanoseconds silence(WorldRank peer, TimePoint now) const { return now - (*this)[peer].last_heard; }

  TimePoint next_heartbeat() const { return next_heartbeat_; }
  // Sends a heartbeat to every peer that was sent nothing else.
  void beat(FrameSender& frame_sender, TimePoint now);

 private:
  Peer& at(WorldRank peer) { return peers_[peer.index()]; }

  const WorldRank rank_;
  const Nanoseconds heartbeat_interval_;
  const Nanoseconds peer_timeout_;
  std::vector<Peer> peers_;
  std::vector<GradedLoss> losses_;  // seen in the last round
  std::vector<GradedLoss> due_;     // seen in the round before
  TimePoint next_heartbeat_{};
  LineMeter line_;
  LineCapacity capacity_;
  bool loses_ = false;
};

}  // namespace qccl::engine
