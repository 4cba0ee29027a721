// What the ranks of an OuterLoop tell each other beside a round: a few numbers that are summed over them.
#pragma once

#include <cstdint>
#include <vector>

namespace qccl::train {

// What one rank says.
struct RoundVote {
  double weight = 1;
  bool may_end = false;  // it is in finish() and has skipped no round
  bool is_loaded = false;
  double rate = 0;
  std::uint64_t model = 0;  // a digest
};

class OuterControl {
 public:
  void set(const RoundVote& own);
  std::vector<double>& numbers() { return numbers_; }

  // ---- once they are summed over so many ranks
  double weight() const { return numbers_[0]; }
  bool all_may_end(int ranks) const { return numbers_[1] == ranks; }
  bool all_are_loaded(int ranks) const { return numbers_[2] == ranks; }
  bool has_equal_rates(int ranks) const;
  bool has_equal_models(int ranks) const;

 private:
  std::vector<double> numbers_;
};

}  // namespace qccl::train
