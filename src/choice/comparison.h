// Values that the ranks of a group compare while its calls go on: one call posts a small all_reduce of them, a later
// one waits for it.
#pragma once

#include <memory>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::comm {

struct Comparison {
  std::vector<double> values;                   // this rank's; once the work has ended, what all ranks agree on
  std::shared_ptr<internal::WorkState> work{};  // null if none is on its way
};

}  // namespace qccl::comm
