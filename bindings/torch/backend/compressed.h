// What torch's interface has no words for: all_reduces that say their own compression and keep what it takes away.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <optional>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// One of the tensors that a call adds.
struct CompressedPart {
  at::Tensor tensor;
  std::optional<Compression> compression{};  // unset: the group's
  ErrorFeedback feedback{};
};

// Error feedback by where tensors lie, for groups that use it for all their reductions: a tensor that stays where it
// is, as DDP's gradient buckets do, meets its own again. Keeps those used last. One thread at a time.
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
  std::list<Item> items_;  // used last in front
};

}  // namespace qccl::torch_binding
