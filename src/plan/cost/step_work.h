// The computation of a step beside moving bytes (engine/compute/slice_encoder.h): how often it passes over its slice.
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

}  // namespace qccl::plan
