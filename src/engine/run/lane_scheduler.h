// Which lanes of an operation are advanced, and in what order.
//
// A lane is advanced after something arrived that it may wait for: a frame or a grant on one of its streams, or the end
// of the lane that it follows. Of the lanes that found no room in the transport, the first of each peer always tries.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/log.h"
#include "base/rank.h"
#include "base/result.h"
#include "engine/compute/deferred_steps.h"

namespace qccl::engine {

// One thread. Allocates in reset() alone, and there only to grow.
class IndexSet {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // Empty, with room for 0 <= index < size.
  void reset(std::size_t size) { words_.assign((size + kBits - 1) / kBits, 0); }
  void insert(std::size_t index) { words_[index / kBits] |= bit(index); }
  void erase(std::size_t index) { words_[index / kBits] &= ~bit(index); }
  // The first member from `index` on, or kNone. A walk meets what is inserted ahead of it.
  std::size_t next(std::size_t index) const {
    std::size_t word = index / kBits;
    if (word >= words_.size()) return kNone;
    std::uint64_t members = words_[word] & ~(bit(index) - 1);
    while (members == 0) {
      if (++word == words_.size()) return kNone;
      members = words_[word];
    }
    return word * kBits + static_cast<std::size_t>(std::countr_zero(members));
  }

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::uint64_t bit(std::size_t index) { return std::uint64_t{1} << (index % kBits); }

  std::vector<std::uint64_t> words_;
};

// Lanes that found no room, by the peer that they send to, first come, first served: of a thousand lanes that wait for
// the same room only the first has to look for it.
//
// One thread. A lane waits in one queue at most. Allocates in reset() alone, and there only to grow.
class LaneQueues {
 public:
  static constexpr std::size_t kNone = IndexSet::kNone;

  // Empty, with room for 0 <= lane < lanes and 0 <= peer < peers.
  void reset(std::size_t peers, std::size_t lanes) {
    with_queue_.reset(peers);
    ends_.assign(peers, {kNone, kNone});
    links_.assign(lanes, {kNone, false});
  }
  bool has(std::size_t lane) const { return links_[lane].queued; }
  void push(std::size_t peer, std::size_t lane) {
    QCCL_CHECK(!has(lane));
    Ends& ends = ends_[peer];
    (ends.last == kNone ? ends.first : links_[ends.last].behind) = lane;
    ends.last = lane;
    links_[lane] = {kNone, true};
    with_queue_.insert(peer);
  }
  // The first lane in the peer's queue, or kNone.
  std::size_t front(std::size_t peer) const { return ends_[peer].first; }
  void pop(std::size_t peer) {
    Ends& ends = ends_[peer];
    QCCL_CHECK(ends.first != kNone);
    links_[ends.first].queued = false;
    ends.first = links_[ends.first].behind;
    if (ends.first != kNone) return;
    ends.last = kNone;
    with_queue_.erase(peer);
  }
  // The first peer from `peer` on with a queue, or kNone.
  std::size_t next_peer(std::size_t peer) const { return with_queue_.next(peer); }

 private:
  struct Ends {
    std::size_t first;
    std::size_t last;
  };
  struct Link {
    std::size_t behind;
    bool queued;
  };
  IndexSet with_queue_;      // peers
  std::vector<Ends> ends_;   // by peer
  std::vector<Link> links_;  // by lane
};

// What came of a step: `waits`: the lane will be woken; `no_room`: try again.
enum class StepStatus : std::uint8_t { done, waits, no_room };

// One thread. Allocates in begin() alone, and there only to grow.
class LaneScheduler {
 public:
  // All lanes are to be advanced.
  void begin(std::size_t lanes, std::size_t peers) {
    awake_.reset(lanes);
    for (std::size_t lane = 0; lane < lanes; ++lane) awake_.insert(lane);
    starved_.reset(peers, lanes);
    unfinished_ = lanes;
  }
  void end_lane() {
    QCCL_CHECK(unfinished_ > 0);
    --unfinished_;
  }
  bool all_ended() const { return unfinished_ == 0; }
  // Something arrived that the lane may wait for. A starved lane tries anyway.
  void wake(std::size_t lane) {
    if (!starved_.has(lane)) awake_.insert(lane);
  }
  // Advances lanes by `advance`, a function from lane to Result<LaneAdvance>; true if any moved.
  template <class Advance>
  Result<bool> run(Advance advance) {
    bool moved = false;
    for (std::size_t peer = starved_.next_peer(0); peer != LaneQueues::kNone; peer = starved_.next_peer(peer + 1)) {
      for (std::size_t lane = starved_.front(peer); lane != LaneQueues::kNone; lane = starved_.front(peer)) {
        auto advanced = take(advance, lane);
        if (!advanced.ok()) return advanced.failure();
        moved |= advanced->moved;
        if (advanced->starved_by == GroupRank(peer)) break;
        starved_.pop(peer);
        requeue(*advanced, lane);
      }
    }
    for (std::size_t lane = awake_.next(0); lane != IndexSet::kNone; lane = awake_.next(lane + 1)) {
      auto advanced = take(advance, lane);
      if (!advanced.ok()) return advanced.failure();
      moved |= advanced->moved;
      requeue(*advanced, lane);
    }
    return moved;
  }

 private:
  template <class Advance>
  Result<LaneAdvance> take(Advance& advance, std::size_t lane) {
    awake_.erase(lane);
    return advance(lane);
  }
  void requeue(const LaneAdvance& advanced, std::size_t lane) {
    if (advanced.is_ready) awake_.insert(lane);
    if (!advanced.starved_by.is_none()) starved_.push(advanced.starved_by.index(), lane);
  }

  IndexSet awake_;
  LaneQueues starved_;
  std::size_t unfinished_ = 0;
};

}  // namespace qccl::engine
