// Tells sums of gradients, which the environment's compression is for, from all other sums (python/qccl/_gradients.py).
#pragma once

#include <string>

#include "qccl/compression.h"

namespace qccl::torch_binding {

struct SumCaller {
  bool sums_gradients;
  std::string name;  // "torch.nn.parallel.distributed"
};

// The function that has this thread start a sum. Takes the interpreter's lock.
SumCaller find_sum_caller();

// Says that the environment's compression applies to such sums of the group, or does not.
void log_sums(const std::string& group, const Compression& compression, const SumCaller& caller);

}  // namespace qccl::torch_binding
