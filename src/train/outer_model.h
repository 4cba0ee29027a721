// The model of an OuterLoop: this rank's parameters, and by fragment the global values, their optimizer and residuals.
#pragma once

#include "qccl/outer.h"
#include "train/outer_fragment.h"

namespace qccl::train {

class OuterModel {
 public:
  // The global values are those of the parameters. Throws invalid_argument for wrong options.
  OuterModel(std::vector<OuterParameter> parameters, const OuterOptions& options);

  std::vector<OuterFragment>& fragments() { return fragments_; }
  const std::vector<OuterFragment>& fragments() const { return fragments_; }
  OuterOptimizer& optimizer() const { return *optimizer_; }
  std::size_t largest() const { return largest_; }  // number of values
  // A digest of what must be equal on all ranks.
  std::uint64_t settings() const;

  void load_own(const OuterFragment& fragment, std::span<float> to) const;
  // Steps the global values by the average of the deltas; averaged values replace them.
  void step_global(std::size_t fragment, std::span<const float> average);
  // Own values = kept x own values + (1 - kept) x global values. `scratch` has as many values as any parameter.
  void blend(const OuterFragment& fragment, float kept, std::span<float> scratch) const;

 private:
  bool is_averaging() const;

  const std::vector<OuterParameter> parameters_;
  const OuterOptions options_;
  std::shared_ptr<OuterOptimizer> optimizer_;
  std::vector<OuterFragment> fragments_;
  std::size_t largest_ = 0;
};

}  // namespace qccl::train
