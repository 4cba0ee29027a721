// What the ranks of an OuterLoop tell each other beside a round: a few numbers that are summed over them.
#pragma once

#include <cstdint>
#include <vector>

namespace qccl::train {

class OuterControl {
 public:
  // Of this rank. `may_end`: it is in finish() and has skipped no round.
  void set(double weight, bool may_end, double rate, std::uint64_t model);
  std::vector<double>& numbers() { return numbers_; }

  // ---- once they are summed over so many ranks
  double weight() const { return numbers_[0]; }
  bool all_may_end(int ranks) const { return numbers_[1] == ranks; }
  bool has_equal_rates(int ranks) const;
  bool has_equal_models(int ranks) const;

 private:
  std::vector<double> numbers_;
};

}  // namespace qccl::train
