#pragma once

#include <memory>

#include "qccl/call.h"

namespace qccl::internal {

class WorkState;

// Another way for some of a group's collectives than the engine alone (group/inside/). Thread-safe.
class Detour {
 public:
  virtual ~Detour() = default;
  // The same on all ranks.
  virtual bool suits(const CollectiveCall& call) const = 0;
  virtual std::shared_ptr<WorkState> post(const CollectiveCall& call) = 0;
  // Waits until none of its calls is in flight: each ends by its deadline, and soon after the group has failed.
  virtual void drain() = 0;
  // Refuses further calls with misuse, then drain().
  virtual void close() = 0;
};

}  // namespace qccl::internal
