// The groups that are made of a group's ranks: Communicator::subgroup(), split() and dup().
//
// No identity is ever used twice, so that late frames of a closed group match no group: it is a digest of the parent's
// identity and of a count that the members keep in step without communication.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::comm {

// The identities of one group's children. Thread-safe.
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

using GroupState = std::shared_ptr<internal::CommunicatorState>;

// See Communicator; split() returns null for a negative colour. Throws Error.
GroupState subgroup(internal::CommunicatorState& parent, const std::vector<int>& members, const std::string& name);
GroupState split(internal::CommunicatorState& parent, int colour, int key);
GroupState dup(internal::CommunicatorState& parent);

}  // namespace qccl::comm
