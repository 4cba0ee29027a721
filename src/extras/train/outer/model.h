// The model of an OuterLoop: this rank's parameters, and by fragment the global values, their optimizer and residuals.
#pragma once

#include "extras/train/outer/fragment.h"
#include "qccl/outer.h"

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
  std::uint64_t settings() const { return settings_; }
  // Whether a step at this rate makes the global model the average of the models. They are then sent themselves: exact,
  // where deltas would be rounded.
  bool is_averaging(double rate) const;

  void load_own(const OuterFragment& fragment, std::span<float> to) const;
  // What a rank sends in a round that begins at this rate: own values, or where it is not averaging, deltas.
  void take_sent(const OuterFragment& fragment, double rate, std::span<const float> own, std::span<float> sent) const;
  // Steps the global values at this rate, at which the round began, by the average of what was sent; overwrites it.
  void step_global(std::size_t fragment, double rate, std::span<float> average);
  // Before the global values become `next`: own values move by as much, the averaged ones become `next`. `scratch` has
  // as many values as any parameter.
  void follow(const OuterFragment& fragment, std::span<const float> next, std::span<float> scratch) const;
  // Own values = kept x own values + (1 - kept) x global values. `scratch` has as many values as any parameter.
  void blend(const OuterFragment& fragment, float kept, std::span<float> scratch) const;

 private:
  std::uint64_t make_settings() const;

  const std::vector<OuterParameter> parameters_;
  const OuterOptions options_;
  std::shared_ptr<OuterOptimizer> optimizer_;
  std::vector<OuterFragment> fragments_;
  std::size_t largest_ = 0;
  std::uint64_t settings_ = 0;
};

}  // namespace qccl::train
