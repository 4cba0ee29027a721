#include "engine/state/group.h"

#include <fmt/format.h>

#include "engine/state/operation.h"

namespace qccl::engine {

Group::~Group() = default;

std::string Group::rank_list(const std::vector<GroupRank>& members) const {
  std::vector<WorldRank> listed;
  for (const GroupRank member : members) listed.push_back(world_rank(member));
  return fmt::format("rank{} {}", listed.size() == 1 ? "" : "s", fmt::join(listed, ", "));
}

}  // namespace qccl::engine
