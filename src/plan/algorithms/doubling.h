// The pairs that swap in recursive doubling.
#pragma once

#include <bit>

namespace qccl::plan {

// The largest power of two of ranks have places, in rank order. Each of the others, the odd ones of the first
// 2 * extra(), gives its part to the rank before it.
class Doubling {
 public:
  explicit Doubling(int world);

  int places() const { return places_; }
  int extra() const { return extra_; }
  int swaps() const { return std::countr_zero(static_cast<unsigned>(places_)); }
  int place_of(int rank) const;  // -1: it has none
  int rank_at(int place) const { return place < extra_ ? 2 * place : place + extra_; }

 private:
  int places_;
  int extra_;
};

}  // namespace qccl::plan
