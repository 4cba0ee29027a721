// The buffers of a group that its ranks map: Communicator::allocate().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/call/call_arguments.h"

namespace qccl::internal {
class CommunicatorState;
}

namespace qccl::comm {

// The regions that are still in use. Thread-safe.
class MappedRegions {
 public:
  // The identity of the next region, the same on all ranks, which allocate in the same order.
  std::uint64_t next_id() { return ++made_; }
  void add(const std::shared_ptr<const engine::MappedRegion>& region);

  // The region that contains the range, and the bytes from its begin to the range.
  struct Match {
    std::shared_ptr<const engine::MappedRegion> region;
    std::uint64_t offset;
  };
  std::optional<Match> find(const void* begin, std::size_t bytes, int rank);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<const engine::MappedRegion>> regions_;  // guarded by mutex_
  std::uint64_t made_ = 0;                                          // by one thread at a time, like every collective
};

// Zeroed memory that the ranks of each host map, or ordinary memory where it cannot be shared. Collective over the
// group. Throws Error; an exception that only this rank has aborts the group.
std::shared_ptr<void> allocate_mapped(internal::CommunicatorState& group, std::size_t bytes);

}  // namespace qccl::comm
