// The buffers of a group that all its ranks map: Communicator::allocate().
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

// Thread-safe; allocate() by one thread at a time, like every collective.
class SharedRegions {
 public:
  // Collective over the group. Throws Error; an exception that only this rank meets aborts the group.
  std::shared_ptr<void> allocate(CommunicatorState& group, std::size_t bytes);

  // The region that the range lies in, and where, in bytes.
  struct Place {
    std::shared_ptr<const engine::MappedRegion> region;
    std::uint64_t offset;
  };
  std::optional<Place> find(const void* begin, std::size_t bytes, int rank);

 private:
  std::shared_ptr<void> share(CommunicatorState& group, std::size_t bytes);

  std::mutex mutex_;
  std::vector<std::weak_ptr<const engine::MappedRegion>> regions_;  // guarded by mutex_
  std::uint64_t made_ = 0;                                          // by allocate()
};

}  // namespace qccl::internal
