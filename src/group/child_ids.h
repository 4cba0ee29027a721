#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

namespace qccl::internal {

// The identities of one group's children. None is ever used twice, so that late frames of a closed group match no
// group: it is a digest of the parent's identity and of a count that the members keep in step without communication.
// Thread-safe.
class ChildIds {
 public:
  explicit ChildIds(std::uint64_t parent) : parent_(parent) {}

  // The next subgroup with these members (group ranks) and name: the same on all ranks whose earlier calls with this
  // list and name are as many.
  std::uint64_t next_subgroup(std::span<const int> members, const std::string& name);
  // For the next group that all ranks make together.
  std::uint64_t next_child();

 private:
  const std::uint64_t parent_;
  std::mutex mutex_;
  std::uint64_t children_ = 0;                                  // guarded by mutex_
  std::unordered_map<std::uint64_t, std::uint64_t> subgroups_;  // by digest of list and name; guarded by mutex_
};

}  // namespace qccl::internal
