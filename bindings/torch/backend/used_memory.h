// The memory that the operations of a call touch: the ranges they read and write in place, and the ranges that results
// are copied to once they have ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

namespace qccl::torch_binding {

// A strided tensor counts as the whole range from its first to its last element. One thread at a time.
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

}  // namespace qccl::torch_binding
