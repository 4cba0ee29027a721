// Lanes that found no room in the transport, by the peer that they send to, first come, first served: of a thousand
// lanes that wait for the same room only the first has to look for it.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/collective/index_set.h"

namespace qccl::engine {

// One thread. A lane waits in one queue at most. Allocates in reset() alone, and there only to grow.
class LaneQueues {
 public:
  static constexpr std::size_t kNone = IndexSet::kNone;

  // Empty, with room for 0 <= lane < lanes and 0 <= peer < peers.
  void reset(std::size_t peers, std::size_t lanes) {
    waited_for_.reset(peers);
    ends_.assign(peers, {kNone, kNone});
    waits_.assign(lanes, {kNone, false});
  }
  bool has(std::size_t lane) const { return waits_[lane].queued; }
  void push(std::size_t peer, std::size_t lane) {
    Ends& ends = ends_[peer];
    (ends.last == kNone ? ends.first : waits_[ends.last].behind) = lane;
    ends.last = lane;
    waits_[lane] = {kNone, true};
    waited_for_.insert(peer);
  }
  // The first lane that waits for the peer, or kNone.
  std::size_t front(std::size_t peer) const { return ends_[peer].first; }
  void pop(std::size_t peer) {
    Ends& ends = ends_[peer];
    waits_[ends.first].queued = false;
    ends.first = waits_[ends.first].behind;
    if (ends.first != kNone) return;
    ends.last = kNone;
    waited_for_.erase(peer);
  }
  // The first peer from `peer` on that lanes wait for, or kNone.
  std::size_t next_peer(std::size_t peer) const { return waited_for_.next(peer); }

 private:
  struct Ends {
    std::size_t first;
    std::size_t last;
  };
  struct Wait {
    std::size_t behind;
    bool queued;
  };
  IndexSet waited_for_;
  std::vector<Ends> ends_;   // by peer
  std::vector<Wait> waits_;  // by lane
};

}  // namespace qccl::engine
