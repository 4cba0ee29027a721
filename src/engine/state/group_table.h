// The groups of this rank: those that are open, those that were closed lately, and frames of groups not opened yet.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/state/group.h"

namespace qccl::engine {

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
  std::vector<Frame>& orphans(std::uint64_t id) { return orphans_[id]; }
  std::size_t orphan_frames() const { return orphan_frames_; }
  void note_orphan() { orphan_frames_ += orphan_frames_ < kMaxStoredFrames ? 1 : 0; }
  std::vector<Frame> take_orphans(std::uint64_t id) {
    auto taken = orphans_.extract(id);
    if (taken.empty()) return {};
    orphan_frames_ -= taken.mapped().size();
    return std::move(taken.mapped());
  }
  // Every frame that is stored, for a group that is open or not.
  template <class Visit>
  void visit_stored(Visit visit) const {
    for (const auto& [id, group] : open_) {
      for (const Frame& stored : group->stored) visit(stored);
    }
    for (const auto& [id, frames] : orphans_) {
      for (const Frame& stored : frames) visit(stored);
    }
  }

 private:
  Map open_;
  mutable Group* recent_ = nullptr;  // that find() found last
  ClosedGroups closed_;
  std::unordered_map<std::uint64_t, std::vector<Frame>> orphans_;
  std::size_t orphan_frames_ = 0;
};

}  // namespace qccl::engine
