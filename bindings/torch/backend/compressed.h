// Types that torch's interface lacks: all_reduces that choose their own compression and keep its error feedback.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <optional>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// One of the tensors that a call sums over the ranks.
struct CompressedPart {
  at::Tensor tensor;
  std::optional<Compression> compression{};  // unset: the group's compression
  ErrorFeedback feedback{};
};

// Error feedback keyed by a tensor's address, for groups that use feedback in all their reductions. A tensor that keeps
// its address, as DDP's gradient buckets do, finds its own feedback again. Keeps the kKept most recently used. One
// thread at a time.
class FeedbackByPlace {
 public:
  static constexpr std::size_t kKept = 256;

  // Made on first use.
  ErrorFeedback of(const void* data, std::size_t count);

 private:
  struct Item {
    const void* data;
    ErrorFeedback feedback;
  };
  std::list<Item> items_;  // most recently used first
};

}  // namespace qccl::torch_binding
