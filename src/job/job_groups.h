// Opens and closes the groups of a job on this rank, and keeps what the ranks of the first group have agreed on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "choice/line_rate.h"
#include "choice/resolve.h"
#include "engine/progress/progress_driver.h"
#include "job/group_agreement.h"
#include "job/group_identity.h"

namespace qccl::comm {

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

  // What this rank's line to distant ranks carries.
  MeasuredLine measured_line() {
    MeasuredLine line;
    driver_.with_engine([&](engine::Engine& engine) {
      const engine::PeerMonitor& peers = engine.peers();
      const double full = peers.line_capacity().rate();
      const bool is_sure = full > 0 && peers.line_capacity().was_full() && !peers.line_loses();
      line = {.rate = is_sure ? full : std::max(peers.line().rate(), full), .full = full, .loses = peers.line_loses()};
    });
    return line;
  }

  // The same on all ranks once the first group is open.
  const CostEnvironment& cost_environment() const { return cost_environment_; }
  std::size_t slice_bytes() const { return slice_bytes_; }

 private:
  struct GroupVote;

  Status run(const GroupIdentity& group, const CollectiveCall& call, std::optional<Nanoseconds> timeout = {});
  void stop_opening(const GroupIdentity& group);
  ErrorInfo explain(const GroupIdentity& group, ErrorInfo failure);
  Status agree(const GroupIdentity& group, GroupVote& vote, std::optional<Nanoseconds> timeout);
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
