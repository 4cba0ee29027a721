// This rank's input as collectives take it: multiplied for premul_sum, with the residual added under error feedback.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/compute/math_context.h"

namespace qccl::engine {

class InputSource {
 public:
  explicit InputSource(const MathContext& math) : math_(math) {}
  // The slice begins with element `first_element` of the whole tensor.
  void begin(std::uint64_t first_element) {
    first_element_ = first_element;
    is_current_ = false;
  }
  // The slice: `input` itself, or, changed, in memory of this object, computed once between two begin(). With error
  // feedback it is floats.
  const std::byte* take(const std::byte* input, std::size_t elements);
  void release() { changed_.reset(); }

 private:
  void add_residual(const std::byte* input, std::size_t elements);

  const MathContext& math_;
  std::uint64_t first_element_ = 0;
  bool is_current_ = false;
  ScratchPool::Buffer changed_;
};

}  // namespace qccl::engine
