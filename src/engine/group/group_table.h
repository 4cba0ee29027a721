// The groups of this rank: those that are open, those that were closed lately, and frames of groups not opened yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/group/group.h"

namespace qccl::engine {

// One thread.
class GroupTable {
 public:
  using Map = std::unordered_map<std::uint64_t, std::unique_ptr<Group>>;

  // Null if it is not open.
  Group* find(std::uint64_t id);
  const Group* find(std::uint64_t id) const;
  Group& add(std::unique_ptr<Group> group);
  // Takes no memory. Late frames of a closed group belong to no group.
  void close(std::uint64_t id);
  bool was_closed(std::uint64_t id) const { return closed_.contains(id); }
  std::size_t size() const { return open_.size(); }
  Map::const_iterator begin() const { return open_.begin(); }
  Map::const_iterator end() const { return open_.end(); }

  // The frames that came for a group before it was opened, and their number over all groups.
  std::vector<StoredFrame>& orphans(std::uint64_t id) { return orphans_[id]; }
  std::size_t orphan_frames() const { return orphan_frames_; }
  void note_orphan() { orphan_frames_ += orphan_frames_ < kMaxStoredFrames ? 1 : 0; }
  std::vector<StoredFrame> take_orphans(std::uint64_t id);
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
  Group* recent_ = nullptr;  // that find() found last
  ClosedGroups closed_;
  std::unordered_map<std::uint64_t, std::vector<StoredFrame>> orphans_;
  std::size_t orphan_frames_ = 0;
};

}  // namespace qccl::engine
