// How errors of ranks and calls cancel. Sizes and random numbers: codec/codec_test.cc. Errors of blocks:
// kernels/h4/h4_test.cc. The promises of every codec: tests/property/codec_contract_test.cc.
#include <cmath>
#include <vector>

#include "codec/round_trip.h"
#include "gtest/gtest.h"
#include "kernels/test_values.h"

namespace qccl {
namespace {

using kernels::finite_families;

double energy(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// Error of the sum of x as encoded by each of `ranks`, relative to the sum's energy.
double error_of_sum(const Codec& codec, const std::vector<float>& x, const std::vector<RandomStream>& ranks) {
  std::vector<double> lacking(x.size()), sum(x.size());
  for (const RandomStream& random : ranks) {
    const std::vector<float> y = round_trip(codec, x, random);
    for (std::size_t i = 0; i < x.size(); ++i) {
      lacking[i] += double{x[i]} - y[i];
      sum[i] += x[i];
    }
  }
  return energy(lacking) / energy(sum);
}

// Ranks with equal inputs use different signs, so that errors cancel in the sum: with N ranks 1 / N of the error is
// left. With the same signs all of it would be left.
TEST(H4Codec, errors_of_ranks_with_equal_inputs_cancel) {
  const std::vector<float> x = finite_families()[0].values(256 * 400, 3);
  for (int bits = 2; bits <= 4; ++bits) {
    const auto codec = codec_of(h4({.bits = bits}));
    const double one = error_of_sum(*codec, x, {RandomStream{.key = 7}});
    std::vector<RandomStream> ranks, same;
    for (std::uint32_t rank = 0; rank < 8; ++rank) ranks.push_back({.key = 7, .rank = rank, .world = 8});
    for (std::uint32_t rank = 0; rank < 8; ++rank) same.push_back({.key = 7, .rank = 0, .world = 8});
    EXPECT_NEAR(error_of_sum(*codec, x, ranks) * 8 / one, 1, 0.1) << bits;
    EXPECT_NEAR(error_of_sum(*codec, x, same) / one, 1, 1e-9) << bits;
  }
}

// The errors of successive calls also cancel, because the next call has another key.
TEST(H4Codec, errors_of_calls_with_equal_inputs_cancel) {
  const std::vector<float> x = finite_families()[0].values(256 * 400, 4);
  const auto codec = codec_of(h4());
  std::vector<RandomStream> calls;
  for (std::uint64_t counter = 0; counter < 8; ++counter)
    calls.push_back({.key = random_key(1, counter, RandomPhase::input)});
  EXPECT_NEAR(error_of_sum(*codec, x, calls) * 8 / error_of_sum(*codec, x, {calls[0]}), 1, 0.1);
}

// The middle of a chunk that begins anywhere in the tensor, as chunks of the caller's own counts do.
TEST(H4Codec, blocks_need_not_begin_on_multiples_of_their_size) {
  const std::vector<float> x = finite_families()[0].values(256 * 8, 20);
  const auto codec = codec_of(h4());
  const std::vector<float> whole = round_trip(*codec, x, {.key = 5, .first_element = 100});
  const std::vector<float> rest = round_trip(*codec, std::span(x).subspan(512), {.key = 5, .first_element = 612});
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 512));
}

}  // namespace
}  // namespace qccl
