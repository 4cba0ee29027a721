#include "extras/train/outer/control.h"

#include <bit>
#include <span>

#include "base/digest/digest.h"

namespace qccl::train {
namespace {

constexpr int kDigestBits = 48;  // different values are taken for equal once in 2^48 times
constexpr std::size_t kDigestNumbers = 2 * kDigestBits / 16;
constexpr std::size_t kRateAt = 3;
constexpr std::size_t kModelAt = kRateAt + kDigestNumbers;

// Numbers of a rank whose sums tell all ranks alike whether their values are equal: for each 16 bits of the value's
// digest their number and its square. For n equal numbers, and for no others, n times the sum of squares is the square
// of the sum.
void add_digest(std::vector<double>& numbers, std::uint64_t value) {
  const std::uint64_t all = digest(value, 0);
  for (int shift = 0; shift < kDigestBits; shift += 16) {
    const auto number = static_cast<double>(all >> shift & 0xFFFF);
    numbers.push_back(number);
    numbers.push_back(number * number);
  }
}

bool has_equal_digests(std::span<const double> sums, int ranks) {
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    if (ranks * sums[i + 1] != sums[i] * sums[i]) return false;
  }
  return true;
}

}  // namespace

void OuterControl::set(const RoundVote& own) {
  numbers_ = {own.weight, own.may_end ? 1.0 : 0.0, own.is_loaded ? 1.0 : 0.0};
  add_digest(numbers_, std::bit_cast<std::uint64_t>(own.rate));
  add_digest(numbers_, own.model);
}

bool OuterControl::has_equal_rates(int ranks) const {
  return has_equal_digests(std::span(numbers_).subspan(kRateAt, kDigestNumbers), ranks);
}

bool OuterControl::has_equal_models(int ranks) const {
  return has_equal_digests(std::span(numbers_).subspan(kModelAt, kDigestNumbers), ranks);
}

}  // namespace qccl::train
