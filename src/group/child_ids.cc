#include "group/child_ids.h"

#include "base/digest/digest.h"

namespace qccl::internal {

std::uint64_t ChildIds::next_subgroup(std::span<const int> members, const std::string& name) {
  std::uint64_t list = digest(name, parent_);
  for (const int member : members) list = digest(static_cast<std::uint64_t>(member), list);
  const std::lock_guard lock(mutex_);
  return digest(++subgroups_[list], list);
}

std::uint64_t ChildIds::next_child() {
  const std::lock_guard lock(mutex_);
  return digest(++children_, digest("child", parent_));
}

}  // namespace qccl::internal
