// The computation of a step beside moving bytes (engine/compute/lane_math.h): how often it passes over its slice.
#pragma once

#include <cstddef>

#include "plan/plan.h"

namespace qccl::plan {

struct StepWork {
  int encodes = 0;
  int decodes = 0;
  int adds = 0;
  int copies = 0;
  friend bool operator==(const StepWork&, const StepWork&) = default;
};

// The work of the lane's step of that index. Bytes that links send and receive are not counted.
StepWork work_of(const Lane& lane, std::size_t step, bool compressed);

// Receives the work of each step of a size-only call, as the step is taken.
class WorkMeter {
 public:
  virtual ~WorkMeter() = default;
  virtual void add(const StepWork& work, std::size_t elements) = 0;
};

}  // namespace qccl::plan
