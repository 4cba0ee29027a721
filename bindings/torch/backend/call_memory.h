// The memory that a call's operations work in: the tensors' own where the library can take it, copies elsewhere.
//
// Tensors of a call may share memory: a tensor stands twice in a list, views overlap, an input is among the outputs.
// The library works on all operations of a call at once, so operations share memory only if none writes it. Colliding
// tensors travel through copies. The result is gloo's: inputs have the values they had when the call was made, and
// outputs are written in list order, so the last one wins. Coalesced calls must not collide: a program that makes one
// call after another expects the second to see the first one's results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <cstddef>
#include <vector>

#include "backend/used_memory.h"

namespace qccl::torch_binding {

// While it lives, this thread may write the tensor, also one made in inference mode, and autograd does not see it.
class WriteGuard {
 public:
  explicit WriteGuard(const at::Tensor& tensor) : inference_(tensor.is_inference()) {}

 private:
  const c10::InferenceMode inference_;
  const at::NoGradGuard no_grad_;  // after inference_, which turns gradients on where it turns itself off
};

// Tensors it returns are contiguous, and it keeps them alive. One thread at a time.
class CallMemory {
 public:
  using Tensors = std::vector<at::Tensor>;
  struct Pair {
    at::Tensor source;
    at::Tensor target;
  };

  // The values of tensors, one after the other.
  at::Tensor read(const Tensors& inputs);
  // Room for the results of tensors, one after the other.
  at::Tensor write(const Tensors& outputs);
  // Room for a tensor's result, with its values in it.
  at::Tensor update(const at::Tensor& tensor);
  // read() and write() for an operation that works in place if the smaller of the two begins `in_place_offset` bytes
  // into the larger.
  Pair read_and_write(const Tensors& inputs, const Tensors& outputs, std::size_t in_place_offset);
  // A copy of `values`, whose result goes to each of `outputs`, in their order. All have the same shape.
  at::Tensor stage(const at::Tensor& values, const Tensors& outputs);
  // The parts of `result`, one after the other, go to `outputs`. `result` must share no memory with them.
  void copy_back(const at::Tensor& result, const Tensors& outputs);

  // Copies results to their tensors, once all operations have ended.
  void finish() const;
  // Appends what the other holds.
  void absorb(CallMemory&& other);
  // Whether one call writes a tensor that the other uses. Misses tensors with gaps, whose overlap is too hard to tell.
  bool collides_with(const CallMemory& other) const;

 private:
  struct CopyBack {
    at::Tensor source;
    at::Tensor target;
  };

  struct Use {
    at::Tensor tensor;
    bool written;
  };

  void note(const Tensors& tensors, bool written);
  const at::Tensor& hold(const at::Tensor& tensor);
  at::Tensor read_plain(const at::Tensor& tensor);
  void copy_back_to(const at::Tensor& result, const at::Tensor& output);

  std::vector<Use> uses_;  // of the caller's tensors
  UsedMemory used_;
  Tensors held_;
  std::vector<CopyBack> copies_;
};

}  // namespace qccl::torch_binding
