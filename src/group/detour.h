#pragma once

#include <memory>

#include "qccl/call.h"

namespace qccl::internal {

class WorkState;

// Another way for some of a group's collectives than the engine alone (group/inside/). Thread-safe; its end waits for
// its calls.
class Detour {
 public:
  virtual ~Detour() = default;
  // The same on all ranks.
  virtual bool suits(const CollectiveCall& call) const = 0;
  virtual std::shared_ptr<WorkState> post(const CollectiveCall& call) = 0;
};

}  // namespace qccl::internal
