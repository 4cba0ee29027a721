// Opens and closes the groups of a job on this rank, and keeps what the ranks of the first group have agreed on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "comm/resolve/resolve.h"
#include "engine/progress/progress_driver.h"

namespace qccl::comm {

// A group as its members know it. Never changes.
struct GroupIdentity {
  std::uint64_t id = 0;  // the same on all members, and never used again
  std::string name{};
  std::vector<int> ranks{};  // world ranks, by group rank
  int rank = 0;              // of this process, in the group

  int size() const { return static_cast<int>(ranks.size()); }
  int world_rank() const { return ranks[static_cast<std::size_t>(rank)]; }
  // A failure of this rank in the group: "QCCL rank 3, group 'world': all_reduce: ...".
  ErrorInfo failure(ErrorKind kind, const std::string& what) const;
  Error invalid_argument(const std::string& operation, const std::string& what) const;
};

// What a rank has measured to the other members of a group, in seconds.
struct RoundTrips {
  double longest = 0;
  double longest_near = 0;  // to those of its site
  int nearest = 0;          // the first member near this rank, or itself
};

// `sites`: of world ranks; empty: ranks less than a millisecond apart are near.
RoundTrips measured(const Transport& transport, const GroupIdentity& group, const std::vector<int>& sites = {});

// What a group's members agree on when they open it.
struct GroupAgreement {
  bool has_board = false;
  Distance distance;
};

// How a group comes to be.
struct GroupOrigin {
  std::optional<std::uint64_t> parent{};  // its members make the group together: fails at once if the parent fails
  std::optional<Nanoseconds> timeout{};   // of the agreement; unset: the job's
  bool may_be_lost = false;               // a group that fails while it opens is not an error, but one that has failed
  std::stop_token stop{};                 // aborts the agreement, on all members
};

// The first group is opened alone. Later ones agree on nothing that this keeps, and several threads may open them.
class JobGroups {
 public:
  // `slice_bytes`: of calls before the first group is open. `timeout`: of the agreement on a group. The driver outlives
  // the object.
  JobGroups(engine::ProgressDriver& driver, CostEnvironment cost_environment, std::size_t slice_bytes,
            Nanoseconds timeout)
      : driver_(driver), cost_environment_(std::move(cost_environment)), slice_bytes_(slice_bytes), timeout_(timeout) {}

  // Opens the group and agrees with its members, also on the cost environment, which is that of the group's first rank.
  // Collective over the group.
  Result<GroupAgreement> open(const GroupIdentity& group, const GroupOrigin& origin);
  void close(std::uint64_t id) {
    driver_.with_engine([id](engine::Engine& engine) { engine.groups().close(id); });
  }
  // Tells the group's other members that this rank has no memory for it. Takes no memory.
  void refuse(GroupIdentity&& group) {
    driver_.with_engine([&](engine::Engine& engine) { engine.groups().refuse(group.id, std::move(group.ranks)); });
  }

  // The bytes a second that this rank's line to distant ranks carries, as measured; 0 if unknown.
  double line_rate() {
    double rate = 0;
    driver_.with_engine([&](engine::Engine& engine) { rate = engine.parts().peers.line().rate(); });
    return rate;
  }

  // The same on all ranks once the first group is open.
  const CostEnvironment& cost_environment() const { return cost_environment_; }
  std::size_t slice_bytes() const { return slice_bytes_; }

 private:
  struct Opening;

  Status run(const GroupIdentity& group, const CollectiveCall& call, std::optional<Nanoseconds> timeout = {});
  void stop_opening(const GroupIdentity& group);
  ErrorInfo explain(const GroupIdentity& group, ErrorInfo failure);
  Status agree(const GroupIdentity& group, Opening& opening, std::optional<Nanoseconds> timeout);
  Status adopt_cost_environment(const GroupIdentity& group, std::optional<Nanoseconds> timeout);
  // The sites by group rank: QCCL_SITES', or those of `nearest`.
  std::vector<int> sites_of(const GroupIdentity& group, std::span<const std::uint64_t> nearest) const;

  engine::ProgressDriver& driver_;
  CostEnvironment cost_environment_;
  std::size_t slice_bytes_;                    // once the first group is open: as its ranks have agreed
  std::optional<std::uint64_t> window_bytes_;  // of the first group's ranks; nothing until then
  const Nanoseconds timeout_;
};

}  // namespace qccl::comm
