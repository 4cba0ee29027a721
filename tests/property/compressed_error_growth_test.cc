// How the mean squared error of a reduction grows with the ranks, as a multiple of the error of encoding a rank's input
// once. With independent inputs, encoding a partial sum of k of N ranks adds k / N of that, so
//
//   one-shot                 1
//   SRA                      (N - 1) / N + 1         every input but the owner's, then the sum
//   ring                     (N - 1) / 2 + 1         sums of 1, 2, .. N - 1 ranks, then the sum; they compound
//   tree                     log2(N) + 1 / N         a complete binary tree below a root with one child, then the sum
//   binomial (reduce)        log2(N) / 2             its root does not encode the sum
//
// for powers of two.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codec/registry.h"
#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kCount = 1 << 16;
const Compression kCompression = block_int({.bits = 4, .block = 32});

double squared_error(const std::vector<long double>& exact, const ByteVector& got) {
  long double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) sum += std::pow(element(DataType::float32, got, i) - exact[i], 2.0L);
  return static_cast<double>(sum);
}

double nmse(const std::vector<long double>& exact, const ByteVector& got) {
  const ByteVector nothing(exact.size() * sizeof(float));
  return squared_error(exact, got) / squared_error(exact, nothing);
}

std::vector<long double> sum_of(const std::vector<ByteVector>& inputs) {
  std::vector<long double> sum(kCount);
  for (const ByteVector& input : inputs) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += element(DataType::float32, input, i);
  }
  return sum;
}

// The error of encoding a rank's input once.
double error_of_one_encoding(const ByteVector& input) {
  const auto codec = make_codec(kCompression).take_or_throw();
  std::vector<float> values(kCount);
  std::memcpy(values.data(), input.data(), input.size());
  std::vector<std::byte> payload(codec->max_encoded_bytes(values.size()));
  payload.resize(codec->encode(values, payload, {}));
  codec->decode(payload, values).take_or_throw();
  ByteVector decoded(input.size());
  std::memcpy(decoded.data(), values.data(), decoded.size());
  return nmse(sum_of({input}), decoded);
}

class ErrorGrowth : public ::testing::TestWithParam<int> {
 protected:
  // The error of the whole reduction, as a multiple of the error of one encoding.
  double growth(Collective collective, Algorithm algorithm) const {
    SimWorld world(world_, {.seed = 1});
    const CallOptions options{.compression = kCompression, .algorithm = algorithm};
    const auto call = make_call(collective, kCount, DataType::float32, world_, options);
    const auto inputs = make_inputs(Pattern::normal, DataType::float32, kCount, world_, 2);
    const CollectiveResult outcome = run_collective(world, call, inputs);
    EXPECT_EQ(outcome.problem, "");
    eps_ = error_of_one_encoding(inputs[0]);
    return nmse(sum_of(inputs), outcome.outputs[0]) / eps_;
  }

  const int world_ = GetParam();
  const double n_ = world_;
  mutable double eps_ = 0;  // of the last call's input
};

TEST_P(ErrorGrowth, of_scatter_reduce_all_gather_is_at_most_two_whatever_the_world) {
  const double grown = growth(Collective::all_reduce, Algorithm::sra);
  EXPECT_NEAR(grown, (n_ - 1) / n_ + 1, 0.05 * 2);
  EXPECT_GE(grown, 1);
  EXPECT_LE(grown, 2.05);
}

TEST_P(ErrorGrowth, of_a_ring_is_half_the_ranks_and_compounds) {
  const double grown = growth(Collective::all_reduce, Algorithm::ring);
  EXPECT_GE(grown, (n_ - 1) / 2 + 1);
  EXPECT_LE(grown, ((n_ - 1) / 2 + 1) * std::pow(1 + eps_, n_) * 1.1);
}

TEST_P(ErrorGrowth, of_trees_is_in_the_logarithm_of_the_ranks) {
  const double depth = std::log2(n_);
  EXPECT_NEAR(growth(Collective::all_reduce, Algorithm::tree), depth + 1 / n_, 0.1 * (depth + 1 / n_));
  EXPECT_NEAR(growth(Collective::reduce, Algorithm::binomial), depth / 2, 0.1 * depth / 2);
}

TEST_P(ErrorGrowth, of_one_shot_is_none) { EXPECT_NEAR(growth(Collective::all_reduce, Algorithm::one_shot), 1, 0.05); }

std::string world_name(const ::testing::TestParamInfo<int>& info) { return fmt::format("world_{}", info.param); }

INSTANTIATE_TEST_SUITE_P(Simulated, ErrorGrowth, ::testing::Values(2, 4, 8), world_name);

}  // namespace
}  // namespace qccl::testing
