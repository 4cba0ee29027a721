// A fragment of the model in an OuterLoop: which parameters it has, its global values, and its residual.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "qccl/outer.h"

namespace qccl::train {

// The layer of a parameter: its name up to the first number ("blocks.3" of "blocks.3.norm.weight"), else up to its last
// dot, else all of it.
std::string_view layer_of(std::string_view name);

// Layer i is in fragment i mod `fragments`; of a fragment's parameters the averaged ones are last. Throws
// invalid_argument if there are fewer layers.
std::vector<std::vector<std::size_t>> fragment_members(const std::vector<OuterParameter>& parameters,
                                                       std::size_t fragments);

// What compression has left out of a fragment's deltas, as float32 or rounded to bfloat16.
class Residual {
 public:
  void resize(std::size_t count, bool as_bfloat16);
  std::size_t size() const { return single_.size() + half_.size(); }
  void read(std::span<float> to, float factor) const;
  void write(std::span<const float> from);
  void clear();

 private:
  std::vector<float> single_;
  std::vector<bfloat16> half_;
};

struct OuterFragment {
  std::vector<std::size_t> members;
  std::vector<std::size_t> begins;  // of each member's values
  std::size_t deltas = 0;           // the first `deltas` values are stepped, the rest only averaged
  std::vector<float> global;
  Residual residual;
  double samples = 0;  // of this rank since its last round
};

}  // namespace qccl::train
