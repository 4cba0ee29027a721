// A set of indices of lanes or streams: a bitmap that is walked in order, so that an operation with a thousand lanes
// visits only those that have something to do.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl::engine {

// One thread. Allocates in reset() alone, and there only to grow.
class IndexSet {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // Empty, with room for 0 <= index < size.
  void reset(std::size_t size) { words_.assign((size + kBits - 1) / kBits, 0); }
  void insert(std::size_t index) { words_[index / kBits] |= bit(index); }
  void erase(std::size_t index) { words_[index / kBits] &= ~bit(index); }
  // The first member from `index` on, or kNone. A walk meets what is inserted ahead of it.
  std::size_t next(std::size_t index) const {
    std::size_t word = index / kBits;
    if (word >= words_.size()) return kNone;
    std::uint64_t members = words_[word] & ~(bit(index) - 1);
    while (members == 0) {
      if (++word == words_.size()) return kNone;
      members = words_[word];
    }
    return word * kBits + static_cast<std::size_t>(std::countr_zero(members));
  }

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::uint64_t bit(std::size_t index) { return std::uint64_t{1} << (index % kBits); }

  std::vector<std::uint64_t> words_;
};

}  // namespace qccl::engine
