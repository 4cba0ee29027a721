// A group on one rank: its members and numbers, its last calls, and the frames that came for calls not posted yet.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call/call_arguments.h"
#include "engine/call/call_ledger.h"
#include "engine/frames/frame.h"
#include "engine/state/admission_control.h"
#include "qccl/error.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

class Operation;

// Enough of a past call to name it when a late frame does not fit it.
struct PastCall {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::shared_ptr<const ResolvedCall> call;
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

// What messages keep in a group; see Mailbox.
class GroupMail {
 public:
  virtual ~GroupMail() = default;
  // Gives back all frames: the group has failed.
  virtual void drop_frames() = 0;
};

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
  std::vector<Frame> stored;            // for calls that this rank has not posted yet
  bool has_board = false;
  PooledVector<int> hosts;                     // by group rank
  std::unique_ptr<GroupMail> mail;             // from the first message on
  std::unique_ptr<Operation> parked_exchange;  // of calls that are done on the spot, from the first one on
  AdmissionControl admission;
  NamedTotals* totals = nullptr;                               // the ledger's row
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

}  // namespace qccl::engine
