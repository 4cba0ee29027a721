// Inputs that every rank can compute for every rank, element by element, from a hash of (salt,
// rank, element). So results are checked without storing or sending the expected values.
//
//   integers, and data that is only copied   all bits random; integer sums and products wrap
//   booleans to be reduced                   half of them 0, the others any byte
//   floating sum, avg, mulsum, min, max      whole numbers small enough that every sum is exact
//   floating prod                            +-1/2, +-1, +-2 of the first 8 ranks, +-1 of the rest
//   floating, to be compressed               reals in [-1, 1) with as many bits as the type holds
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/perf/perf_case.h"

namespace qccl::tools {

// Bits of a floating type's significand, the implicit one included.
int precision_bits(DataType type);

// Elements that loops over inputs and outputs handle at a time.
inline constexpr std::size_t kInputBlock = 4096;

class Inputs {
 public:
  // `salt` differs between rounds, so that data left over from an earlier round is wrong in the next.
  Inputs(const Case& c, bool lossy, std::uint64_t salt);

  // True if elements are compared as bits (elements()), false if as numbers (values()).
  bool as_bits() const { return as_bits_; }

  // Elements [first, first + target.size()) of `rank`'s input, signed integers sign-extended, all other types
  // zero-extended.
  void elements(int rank, std::uint64_t first, std::span<std::uint64_t> target) const;
  void values(int rank, std::uint64_t first, std::span<double> target) const;
  // The values that the reduction adds: premul_sum multiplies the inputs first.
  void contributions(int rank, std::uint64_t first, std::span<double> target) const;

  // `count` elements in the case's type.
  void write(int rank, std::uint64_t first, std::uint64_t count, std::byte* target) const;

 private:
  std::uint32_t seed(int rank) const;
  void whole_numbers(int rank, std::uint64_t first, std::span<double> target) const;
  void powers(int rank, std::uint64_t first, std::span<double> target) const;

  DataType type_;
  bool as_bits_;
  bool half_are_false_;
  ReduceOp op_;
  std::uint64_t salt_;
  int active_ranks_;       // the others' whole numbers are 0
  std::uint32_t largest_;  // whole numbers are in [-largest, largest]
  double scale_;           // times this
};

constexpr bool is_signed_integer(DataType type) {
  return type == DataType::int8 || type == DataType::int16 || type == DataType::int32 || type == DataType::int64;
}

// Outputs of `type` as numbers.
void load_values(DataType type, const std::byte* source, std::span<double> target);
// Bits like those of Inputs::elements(), as elements of `type`.
void store_elements(DataType type, std::span<const std::uint64_t> source, std::byte* target);

}  // namespace qccl::tools
