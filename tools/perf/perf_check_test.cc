// The checks of `qccl perf` reject wrong results and pass right ones.
#include "tools/perf/perf_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace qccl::tools {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                               DataType::int32,   DataType::int64,   DataType::uint8,   DataType::int8,
                               DataType::uint32,  DataType::uint64,  DataType::int16,   DataType::uint16,
                               DataType::boolean};

std::vector<std::byte> written(const Inputs& inputs, const Case& c, int rank) {
  std::vector<std::byte> bytes(c.input_count() * element_bytes(c.type));
  inputs.write(rank, 0, c.input_count(), bytes.data());
  return bytes;
}

Case small_case(Operation collective, DataType type, std::uint64_t count = 5000) {
  return {.collective = collective, .type = type, .world = 3, .count = count};
}

// The output of an all_gather on every rank.
std::vector<std::byte> gathered(const Inputs& inputs, const Case& c) {
  std::vector<std::byte> all;
  for (int rank = 0; rank < c.world; ++rank) {
    const auto part = written(inputs, c, rank);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The result of an all_reduce that sums floats over the case's ranks.
std::vector<float> summed(const Inputs& inputs, const Case& c) {
  std::vector<float> sum(c.count);
  for (int rank = 0; rank < c.world; ++rank) {
    const auto part = written(inputs, c, rank);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      float x;
      std::memcpy(&x, part.data() + 4 * i, 4);
      sum[i] += x;
    }
  }
  return sum;
}

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(PerfCheck, gathered_inputs_pass_and_any_flipped_bit_is_one_wrong_element) {
  for (const DataType type : kTypes) {
    const Case c = small_case(Collective::all_gather, type);
    const Inputs inputs(c, false, 7);
    auto output = gathered(inputs, c);
    EXPECT_EQ(check_output(c, {}, inputs, 1, output.data()).wrong, 0u) << to_string(type);
    for (const std::size_t at : {std::size_t{0}, output.size() / 2, output.size() - 1}) {
      output[at] ^= std::byte{1};
      EXPECT_EQ(check_output(c, {}, inputs, 1, output.data()).wrong, 1u) << to_string(type);
      output[at] ^= std::byte{1};
    }
  }
}

TEST(PerfCheck, reduced_booleans_are_0_or_1) {
  constexpr ReduceOp kOps[] = {ReduceOp::sum,     ReduceOp::prod,   ReduceOp::min,    ReduceOp::max,
                               ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor};
  for (const ReduceOp op : kOps) {
    Case c = small_case(Collective::all_reduce, DataType::boolean);
    c.op = op;
    const Inputs inputs(c, false, 7);
    std::vector<std::byte> output(c.count);
    std::vector<int> trues(c.count);
    for (int rank = 0; rank < c.world; ++rank) {
      const auto part = written(inputs, c, rank);
      for (std::size_t i = 0; i < part.size(); ++i) trues[i] += part[i] != std::byte{0};
    }
    const bool is_and = op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::bit_and;
    for (std::size_t i = 0; i < output.size(); ++i) {
      const bool odd = trues[i] % 2 != 0;
      output[i] = std::byte{op == ReduceOp::bit_xor ? odd : is_and ? trues[i] == c.world : trues[i] > 0};
    }
    EXPECT_EQ(check_output(c, {}, inputs, 0, output.data()).wrong, 0u) << to_string(op);
    for (const int instead : {2, 255}) {
      const std::byte right = std::exchange(output[17], static_cast<std::byte>(instead));
      EXPECT_EQ(check_output(c, {}, inputs, 0, output.data()).wrong, 1u) << to_string(op);
      output[17] = right;
    }
    output[17] ^= std::byte{1};
    EXPECT_EQ(check_output(c, {}, inputs, 0, output.data()).wrong, 1u) << to_string(op);
  }
}

TEST(PerfCheck, each_rank_receives_its_own_part_of_moved_data) {
  const auto wrong = [](Operation operation, int rank, auto source, auto begin) {
    Case c = small_case(operation, DataType::int32);
    c.root = 1;
    const Inputs inputs(c, false, 7);
    std::vector<std::byte> output(c.output_count() * 4);
    for (std::uint64_t part = 0; part < c.output_count() / c.count; ++part) {
      inputs.write(source(part), begin, c.count, output.data() + part * c.count * 4);
    }
    return check_output(c, {}, inputs, rank, output.data()).wrong;
  };
  const auto root = [](std::uint64_t) { return 1; };
  const auto each = [](std::uint64_t part) { return static_cast<int>(part); };
  EXPECT_EQ(wrong(Collective::scatter, 2, root, 10000), 0u);
  EXPECT_GT(wrong(Collective::scatter, 0, root, 10000), 4900u);
  EXPECT_EQ(wrong(Collective::gather, 1, each, 0), 0u);
  EXPECT_GT(wrong(Collective::gather, 1, root, 0), 9800u);
  EXPECT_EQ(wrong(Collective::gather, 0, root, 0), 0u) << "only the root has an output";
  EXPECT_EQ(wrong(Collective::all_to_all, 1, each, 5000), 0u);
  EXPECT_GT(wrong(Collective::all_to_all, 2, each, 5000), 14700u);
  EXPECT_EQ(wrong(kSendrecv, 2, root, 0), 0u);
  EXPECT_GT(wrong(kSendrecv, 0, root, 0), 4900u);
}

TEST(PerfCheck, results_of_another_round_are_wrong) {
  for (const DataType type : kTypes) {
    const Case c = small_case(Collective::all_gather, type);
    const Inputs before(c, false, 7), now(c, false, 8);
    const auto stale = gathered(before, c);
    EXPECT_GT(check_output(c, {}, now, 0, stale.data()).wrong, c.output_count() * 9 / 10) << to_string(type);
  }
}

TEST(PerfCheck, a_sum_that_is_one_ulp_off_is_wrong) {
  const Case c = small_case(Collective::all_reduce, DataType::float32);
  const Inputs inputs(c, false, 1);
  auto sum = summed(inputs, c);
  const CheckResult right = check_output(c, {}, inputs, 0, bytes_of(sum));
  EXPECT_EQ(right.wrong, 0u);
  EXPECT_EQ(right.largest_error, 0);
  sum[4999] = std::nextafter(sum[4999], 1e30f);
  const CheckResult off = check_output(c, {}, inputs, 0, bytes_of(sum));
  EXPECT_EQ(off.wrong, 1u);
  EXPECT_GT(off.largest_error, 0);
  EXPECT_NE(off.digest, right.digest);
}

TEST(PerfCheck, a_lost_rank_or_nan_is_wrong) {
  const Case c = small_case(Collective::all_reduce, DataType::float32);
  const Inputs inputs(c, false, 1);
  Case fewer = c;
  fewer.world = 2;
  const auto lost = summed(inputs, fewer);
  EXPECT_GT(check_output(c, {}, inputs, 0, bytes_of(lost)).wrong, 4900u);
  auto sum = summed(inputs, c);
  sum[17] = NAN;
  EXPECT_EQ(check_output(c, {}, inputs, 0, bytes_of(sum)).wrong, 1u);
}

TEST(PerfCheck, averages_may_be_two_ulp_off_and_no_more) {
  Case c = small_case(Collective::all_reduce, DataType::float32);
  c.op = ReduceOp::avg;
  const Inputs inputs(c, false, 1);
  auto average = summed(inputs, c);
  for (float& x : average) x /= 3;
  EXPECT_EQ(check_output(c, {}, inputs, 0, bytes_of(average)).wrong, 0u);
  average[3] *= 1 + 0x1p-21f;
  EXPECT_EQ(check_output(c, {}, inputs, 0, bytes_of(average)).wrong, 1u);
}

TEST(PerfCheck, a_premul_sum_without_its_factors_is_wrong) {
  Case c = small_case(Collective::all_reduce, DataType::float32);
  c.op = ReduceOp::premul_sum;
  const Inputs inputs(c, false, 1);
  std::vector<float> sum(c.count);
  for (int rank = 0; rank < c.world; ++rank) {
    std::vector<double> input(c.count);
    inputs.values(rank, 0, input);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(input[i] * (rank == 1 ? 2 : 1));
  }
  EXPECT_EQ(check_output(c, {}, inputs, 0, bytes_of(sum)).wrong, 0u);
  const auto plain = summed(inputs, c);
  EXPECT_GT(check_output(c, {}, inputs, 0, bytes_of(plain)).wrong, 4900u);
}

TEST(PerfCheck, unsigned_and_signed_integers_have_their_own_order) {
  const auto wrong = [](DataType type, ReduceOp op, std::size_t bytes, auto choose) {
    Case c = small_case(Collective::all_reduce, type, 3000);
    c.op = op;
    c.world = 2;
    const Inputs inputs(c, false, 9);
    std::vector<std::uint64_t> a(c.count), b(c.count);
    inputs.elements(0, 0, a);
    inputs.elements(1, 0, b);
    std::vector<std::byte> output(c.count * bytes);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::uint64_t chosen = choose(a[i], b[i]);
      std::memcpy(output.data() + i * bytes, &chosen, bytes);
    }
    return check_output(c, {}, inputs, 0, output.data()).wrong;
  };
  const auto as_signed = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) ? a : b;
  };
  const auto as_unsigned = [](std::uint64_t a, std::uint64_t b) { return a < b ? a : b; };
  EXPECT_EQ(wrong(DataType::int64, ReduceOp::min, 8, as_signed), 0u);
  EXPECT_EQ(wrong(DataType::uint64, ReduceOp::min, 8, as_unsigned), 0u);
  EXPECT_EQ(wrong(DataType::int8, ReduceOp::min, 1, as_signed), 0u);
  EXPECT_EQ(wrong(DataType::uint32, ReduceOp::min, 4, as_unsigned), 0u);
  EXPECT_GT(wrong(DataType::uint64, ReduceOp::min, 8, as_signed), 1000u);
  EXPECT_GT(wrong(DataType::int8, ReduceOp::min, 1, as_unsigned), 1000u);
}

TEST(PerfCheck, a_lossy_sum_passes_within_the_bound_and_fails_beyond_it) {
  const Case c = small_case(Collective::all_reduce, DataType::float32);
  const Effective effective = {minmax({.bits = 4, .bucket_size = 512}), Algorithm::sra};
  const Inputs inputs(c, true, 1);
  auto sum = summed(inputs, c);
  const CheckResult exact = check_output(c, effective, inputs, 0, bytes_of(sum));
  EXPECT_EQ(exact.wrong, 0u);
  EXPECT_LT(exact.largest_error, 1e-6);
  // Two inputs of range 2 and a sum of range below 6, in 15 steps: about 2/30 + 2/30 + 6/30.
  EXPECT_GT(exact.largest_bound, 0.2);
  EXPECT_LT(exact.largest_bound, 0.35);
  sum[4000] += static_cast<float>(exact.largest_bound) * 0.5f;
  EXPECT_EQ(check_output(c, effective, inputs, 0, bytes_of(sum)).wrong, 0u);
  sum[4000] += static_cast<float>(exact.largest_bound) * 0.6f;
  const CheckResult beyond = check_output(c, effective, inputs, 0, bytes_of(sum));
  EXPECT_EQ(beyond.wrong, 1u);
  EXPECT_GT(beyond.largest_error, beyond.largest_bound);
}

// Moved elements arrive decoded: within the error of one encoding of their own bucket.
TEST(PerfCheck, moved_compressed_elements_pass_within_the_bound_and_fail_beyond_it) {
  const Effective effective = {minmax({.bits = 4, .bucket_size = 512}), Algorithm::ring};
  for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
    const Case c = small_case(Collective::all_gather, type);
    const Inputs inputs(c, true, 1);
    auto output = gathered(inputs, c);
    const CheckResult exact = check_output(c, effective, inputs, 1, output.data());
    EXPECT_EQ(exact.wrong, 0u);
    EXPECT_EQ(exact.largest_error, 0);
    // Half a step of a range of 2 in 15 steps, plus the rounding of a narrow type.
    EXPECT_GT(exact.largest_bound, 0.066);
    EXPECT_LT(exact.largest_bound, 0.072);
    std::byte* const last = output.data() + output.size() - element_bytes(type);
    std::vector<double> value(1);
    load_values(type, last, value);
    last[element_bytes(type) - 1] ^= std::byte{0x80};
    const CheckResult turned = check_output(c, effective, inputs, 1, output.data());
    EXPECT_EQ(turned.wrong, std::abs(2 * value[0]) > exact.largest_bound ? 1u : 0u) << value[0];
    EXPECT_EQ(turned.largest_error, std::abs(2 * value[0]));
    const auto stale = gathered(Inputs(c, true, 2), c);
    EXPECT_GT(check_output(c, effective, inputs, 0, stale.data()).wrong, c.output_count() * 8 / 10);
  }
}

TEST(PerfCheck, a_ranks_own_part_of_an_all_to_all_must_be_unchanged) {
  const Case c = small_case(Collective::all_to_all, DataType::float32);
  const Effective effective = {minmax({.bits = 8}), Algorithm::pairwise};
  const Inputs inputs(c, true, 1);
  std::vector<float> output(c.output_count());
  for (int source = 0; source < c.world; ++source) {
    inputs.write(source, 2 * c.count, c.count, reinterpret_cast<std::byte*>(output.data() + source * c.count));
  }
  EXPECT_EQ(check_output(c, effective, inputs, 2, bytes_of(output)).wrong, 0u);
  for (const std::uint64_t part : {0, 1, 2}) output[part * c.count + 7] += 1e-4f;
  EXPECT_EQ(check_output(c, effective, inputs, 2, bytes_of(output)).wrong, 1u);
}

TEST(PerfInputs, parts_written_apart_equal_the_whole) {
  for (const DataType type : kTypes) {
    const Case c = small_case(Collective::all_reduce, type, 10000);
    const Inputs inputs(c, false, 3);
    const auto whole = written(inputs, c, 1);
    std::vector<std::byte> part(77 * element_bytes(type));
    inputs.write(1, 4090, 77, part.data());
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + 4090 * element_bytes(type), part.size()), 0) << to_string(type);
  }
}

TEST(PerfInputs, numbers_survive_their_type) {
  for (const DataType type : {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16}) {
    for (const bool lossy : {false, true}) {
      const Case c = small_case(Collective::all_reduce, type, 4096);
      const Inputs inputs(c, lossy, 5);
      const auto bytes = written(inputs, c, 2);
      std::vector<double> meant(4096), stored(4096);
      inputs.values(2, 0, meant);
      load_values(type, bytes.data(), stored);
      EXPECT_EQ(meant, stored) << to_string(type);
      EXPECT_GT(std::set<double>(meant.begin(), meant.end()).size(), 100u) << to_string(type);
    }
  }
}

TEST(PerfInputs, elements_beyond_4_billion_differ_from_those_below) {
  const Case c = small_case(Collective::all_reduce, DataType::float32);
  const Inputs inputs(c, true, 5);
  std::vector<double> low(64), high(64);
  inputs.values(0, 0, low);
  inputs.values(0, 1ull << 32, high);
  EXPECT_NE(low, high);
}

}  // namespace
}  // namespace qccl::tools
