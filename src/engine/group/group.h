// A group on one rank: its members and numbers, its last calls, and the frames that came for calls not posted yet. The
// table of all: those that are open, those that were closed lately, and frames of groups not opened yet.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/call/call_arguments.h"
#include "qccl/error.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

// Decides which of a group's long collectives run and which wait. Ranks post a group's collectives in one order, so the
// oldest unfinished one runs everywhere and no wait is endless.
//
// A few run at a time, because calls under way share the caches: eight calls of 4 or 16 MiB by 4 ranks on 2 cores, over
// loopback TCP, took 1.3 to 1.8 times as long all at once as in turns.
class AdmissionControl {
 public:
  // Shorter calls begin at once, and keep no longer one waiting.
  static constexpr std::uint64_t kLongBytes = std::uint64_t{256} << 10;
  // Long calls run together up to this size, which covers the end of one and the beginning of the next. A longer one
  // runs alone.
  static constexpr std::uint64_t kRunningBytes = std::uint64_t{8} << 20;

  // A long call was posted: true if it begins at once, else it waits in order.
  bool post(std::uint64_t bytes) {
    if (waiting_ == 0 && has_room(bytes)) {
      running_ += bytes;
      return true;
    }
    ++waiting_;
    return false;
  }
  // A long call that had begun has ended.
  void end(std::uint64_t bytes) { running_ -= bytes; }
  bool any_waits() const { return waiting_ > 0; }
  // Whether the first call that waits, of so many bytes, begins now.
  bool begin_next(std::uint64_t bytes) {
    if (!has_room(bytes)) return false;
    --waiting_;
    running_ += bytes;
    return true;
  }

 private:
  bool has_room(std::uint64_t bytes) const { return running_ == 0 || running_ + bytes <= kRunningBytes; }

  std::uint64_t running_ = 0;
  std::size_t waiting_ = 0;
};

class CellOperation;
class Mailbox;

// Enough of a past call to name it when a late frame does not fit it.
struct PastCall {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::shared_ptr<const ResolvedCall> call;
};

// A frame for an operation this rank has not posted yet. It keeps its transport slot.
struct StoredFrame {
  wire::FrameHeader header;
  ReceivedFrame frame;
};

// The most collectives that a rank has in flight in a group: a rank that is so far ahead of a late one waits. For each
// it sends a peer less than 2 world + 4 control frames before that peer has posted it.
inline std::size_t max_in_flight(std::size_t world) {
  return std::max<std::size_t>(1, std::min<std::size_t>(4096, 16384 / std::max<std::size_t>(1, world)));
}

// Frames stored for one peer: more than a peer sends ahead within that limit and its eager budget (16384 frames), so a
// peer that exceeds it is broken.
inline constexpr std::size_t kMaxStoredFrames = 65536;
inline constexpr std::size_t kHistory = 1024;

// Groups that this rank had no memory for and whose members it has yet to notify. Programs make few groups at a time;
// the members of further ones wait for their deadline.
inline constexpr std::size_t kMaxRefusals = 16;

struct Group {
  ~Group();

  std::uint64_t id = 0;
  std::string name;
  std::vector<int> ranks;             // by group rank: the rank in the world
  std::vector<GroupRank> members_of;  // by world rank
  GroupRank rank;                     // of this process
  std::uint64_t next_sequence = 1;
  std::uint64_t next_board_sequence = 1;
  std::uint64_t finished_board_sequence = 0;
  std::uint64_t compressed_calls = 0;   // posted so far, the same on all members
  internal::SharedFailure failure;      // the first one; later calls return it
  bool is_untold = false;               // the other members have yet to be told of it
  std::optional<std::uint64_t> parent;  // whose members make this group, until all of them have opened it
  std::vector<PastCall> history;        // the last kHistory calls; sequence s at (s - 1) % kHistory
  std::vector<StoredFrame> stored;
  bool has_board = false;
  PooledVector<int> hosts;                         // by group rank
  std::unique_ptr<Mailbox> mailbox;                // from the first message on
  std::unique_ptr<CellOperation> parked_exchange;  // of calls that are done on the spot, from the first one on
  AdmissionControl admission;
  std::vector<std::shared_ptr<internal::WorkState>> watchers;  // end with the failure, or well when the group is closed

  int world() const { return static_cast<int>(ranks.size()); }
  WorldRank world_rank(GroupRank member) const { return WorldRank(ranks[member.index()]); }
  // None if it is no member.
  GroupRank group_rank(WorldRank peer) const { return members_of[peer.index()]; }

  // The first of the next `count` numbers of its meetings.
  std::uint64_t take_board_numbers(std::uint64_t count) {
    return std::exchange(next_board_sequence, next_board_sequence + count);
  }

  void remember(std::uint64_t sequence, const ExecutablePlan& plan) {
    if (history.size() < kHistory) return history.push_back({sequence, plan.fingerprint(), plan.shared_call()});
    PastCall& oldest = history[(sequence - 1) % kHistory];
    oldest.sequence = sequence;
    oldest.fingerprint = plan.fingerprint();
    if (oldest.call != plan.shared_call()) oldest.call = plan.shared_call();
  }
  // The next remember() takes no memory.
  void make_room_in_history() {
    if (history.size() == history.capacity() && history.size() < kHistory) history.reserve(2 * history.size() + 1);
  }
  // "ranks 1, 3", as the world numbers them.
  std::string rank_list(const std::vector<GroupRank>& members) const;
  const PastCall* past(std::uint64_t sequence) const {
    const std::size_t slot = (sequence - 1) % kHistory;
    return sequence > 0 && slot < history.size() && history[slot].sequence == sequence ? &history[slot] : nullptr;
  }
};

// The identities of the groups that were closed last; none is used again. A frame of a forgotten one is kept as that of
// a group still to be opened, of which there are few enough.
class ClosedGroups {
 public:
  ClosedGroups() { known_.reserve(kRemembered); }
  // Takes no memory.
  void add(std::uint64_t id) {
    if (contains(id)) return;
    if (known_.size() < kRemembered) return known_.push_back(id);
    known_[next_] = id;
    next_ = (next_ + 1) % kRemembered;
  }
  bool contains(std::uint64_t id) const { return std::ranges::find(known_, id) != known_.end(); }

 private:
  static constexpr std::size_t kRemembered = 1024;
  std::vector<std::uint64_t> known_;  // a ring once it is full
  std::size_t next_ = 0;
};

class GroupTable {
 public:
  using Map = std::unordered_map<std::uint64_t, std::unique_ptr<Group>>;

  // Null if it is not open.
  Group* find(std::uint64_t id) const {
    if (recent_ != nullptr && recent_->id == id) return recent_;
    const auto found = open_.find(id);
    return found == open_.end() ? nullptr : recent_ = found->second.get();
  }
  Group& add(std::unique_ptr<Group> group) { return *open_.emplace(group->id, std::move(group)).first->second; }
  // Takes no memory. Late frames of a closed group belong to no group.
  void close(std::uint64_t id) {
    recent_ = nullptr;
    open_.erase(id);
    closed_.add(id);
  }
  bool was_closed(std::uint64_t id) const { return closed_.contains(id); }
  std::size_t size() const { return open_.size(); }
  Map::const_iterator begin() const { return open_.begin(); }
  Map::const_iterator end() const { return open_.end(); }

  // The frames that came for a group before it was opened, and their number over all groups.
  std::vector<StoredFrame>& orphans(std::uint64_t id) { return orphans_[id]; }
  std::size_t orphan_frames() const { return orphan_frames_; }
  void note_orphan() { orphan_frames_ += orphan_frames_ < kMaxStoredFrames ? 1 : 0; }
  std::vector<StoredFrame> take_orphans(std::uint64_t id) {
    auto taken = orphans_.extract(id);
    if (taken.empty()) return {};
    orphan_frames_ -= taken.mapped().size();
    return std::move(taken.mapped());
  }
  // Every frame that is stored, for a group that is open or not.
  template <class Visit>
  void visit_stored(Visit visit) const {
    for (const auto& [id, group] : open_) {
      for (const StoredFrame& stored : group->stored) visit(stored);
    }
    for (const auto& [id, frames] : orphans_) {
      for (const StoredFrame& stored : frames) visit(stored);
    }
  }

 private:
  Map open_;
  mutable Group* recent_ = nullptr;  // that find() found last
  ClosedGroups closed_;
  std::unordered_map<std::uint64_t, std::vector<StoredFrame>> orphans_;
  std::size_t orphan_frames_ = 0;
};

}  // namespace qccl::engine
