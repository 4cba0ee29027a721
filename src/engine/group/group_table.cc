#include "engine/group/group_table.h"

#include <utility>

namespace qccl::engine {

Group* GroupTable::find(std::uint64_t id) {
  if (recent_ != nullptr && recent_->id == id) return recent_;
  const auto found = open_.find(id);
  if (found == open_.end()) return nullptr;
  recent_ = found->second.get();
  return recent_;
}

const Group* GroupTable::find(std::uint64_t id) const {
  const auto found = open_.find(id);
  return found == open_.end() ? nullptr : found->second.get();
}

Group& GroupTable::add(std::unique_ptr<Group> group) {
  Group& added = *group;
  open_.emplace(added.id, std::move(group));
  return added;
}

void GroupTable::close(std::uint64_t id) {
  recent_ = nullptr;
  open_.erase(id);
  closed_.add(id);
}

std::vector<StoredFrame> GroupTable::take_orphans(std::uint64_t id) {
  auto taken = orphans_.extract(id);
  if (taken.empty()) return {};
  orphan_frames_ -= taken.mapped().size();
  return std::move(taken.mapped());
}

}  // namespace qccl::engine
