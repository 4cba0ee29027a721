// The memory that a call's operations work in: the tensors' own memory where the library can use it, else copies.
//
// Tensors of a call may share memory: a tensor appears twice in a list, views overlap, an input is among the outputs.
// The library works on all operations of a call at once, so operations share memory only if none writes it. Colliding
// tensors travel through copies. The result is gloo's: inputs have the values they had when the call was made, and
// outputs are written in list order, so the last one wins. Coalesced calls must not collide: a program that makes one
// call after another expects the second to see the first one's results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace qccl::torch_binding {

// While it lives, this thread may write the tensor, even one made in inference mode, and autograd does not see the
// writes.
class WriteGuard {
 public:
  explicit WriteGuard(const at::Tensor& tensor) : inference_(tensor.is_inference()) {}

 private:
  const c10::InferenceMode inference_;
  const at::NoGradGuard no_grad_;  // after inference_, which turns gradients on when it turns inference mode off
};

// The ranges of memory that the operations of a call read and write in place, and those that results are copied to once
// they have ended. A strided tensor counts as the whole range from its first to its last element.
class UsedMemory {
 public:
  void add_read(const at::Tensor& tensor) { reads_.add(range_of(tensor)); }
  void add_write(const at::Tensor& tensor) { writes_.add(range_of(tensor)); }
  void add_later_write(const at::Tensor& tensor) { later_writes_.add(range_of(tensor)); }
  // Whether another operation may read (or write) the tensor in place.
  bool may_read(const at::Tensor& tensor) const { return !writes_.overlap(range_of(tensor)); }
  bool may_write(const at::Tensor& tensor) const;

 private:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  class Ranges {
   public:
    void add(Range range);
    bool overlap(const Range& range) const;

   private:
    using Ends = std::map<std::uintptr_t, std::uintptr_t>;
    Ends::const_iterator first_overlapping(const Range& range) const;

    Ends ends_;  // by begin; none overlap
  };
  static Range range_of(const at::Tensor& tensor);

  Ranges reads_;
  Ranges writes_;
  Ranges later_writes_;
};

// Keeps the tensors it returns alive; they are contiguous. One thread at a time.
class CallMemory {
 public:
  using Tensors = std::vector<at::Tensor>;
  struct Pair {
    at::Tensor source;
    at::Tensor target;
  };

  // The values of the inputs, one after the other.
  at::Tensor read(const Tensors& inputs);
  // Room for the results of the outputs, one after the other.
  at::Tensor write(const Tensors& outputs);
  // Room for a tensor's result, initialized with its values.
  at::Tensor update(const at::Tensor& tensor);
  // read() and write() for an operation that works in place if the smaller buffer begins `in_place_offset` bytes into
  // the larger.
  Pair read_and_write(const Tensors& inputs, const Tensors& outputs, std::size_t in_place_offset);
  // A copy of `values`. finish() copies its result to each of `outputs`, in order. All have the same shape.
  at::Tensor stage(const at::Tensor& values, const Tensors& outputs);
  // finish() copies the consecutive parts of `result` to `outputs`. `result` must share no memory with them.
  void copy_back(const at::Tensor& result, const Tensors& outputs);

  // Copies results to their tensors, once all operations have ended.
  void finish() const;
  // Takes over the tensors and copies of `other`.
  void absorb(CallMemory&& other);
  // Whether one call writes a tensor that the other uses. Ignores tensors with gaps: their overlap is too costly to
  // determine.
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
