#include "tools/perf/perf_bound.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstring>

namespace qccl::tools {
namespace {

using Bits = std::array<std::uint64_t, kInputBlock>;
using Values = std::array<double, kInputBlock>;

// result[i] op= other[i].
void combine(ReduceOp op, std::span<double> result, std::span<const double> other) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    switch (op) {
      case ReduceOp::prod: result[i] *= other[i]; break;
      case ReduceOp::min: result[i] = std::min(result[i], other[i]); break;
      case ReduceOp::max: result[i] = std::max(result[i], other[i]); break;
      default: result[i] += other[i]; break;
    }
  }
}

// For integers that wrap, sign-extended to 64 bits, and for booleans that are 0 or 1.
void combine(DataType type, ReduceOp op, std::span<std::uint64_t> result, std::span<const std::uint64_t> other) {
  // Signed numbers have the order of unsigned ones once their sign bit is flipped.
  const std::uint64_t turn = is_signed_integer(type) ? std::uint64_t{1} << 63 : 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool is_less = (result[i] ^ turn) < (other[i] ^ turn);
    switch (op) {
      case ReduceOp::prod: result[i] *= other[i]; break;
      case ReduceOp::min: result[i] = is_less ? result[i] : other[i]; break;
      case ReduceOp::max: result[i] = is_less ? other[i] : result[i]; break;
      case ReduceOp::bit_and: result[i] &= other[i]; break;
      case ReduceOp::bit_or: result[i] |= other[i]; break;
      case ReduceOp::bit_xor: result[i] ^= other[i]; break;
      default: result[i] += other[i]; break;
    }
    if (type == DataType::boolean) result[i] = result[i] != 0;
  }
}

class Checker {
 public:
  Checker(const Case& c, const Effective& effective, const Inputs& inputs, int rank, const std::byte* output)
      : case_(c), effective_(effective), inputs_(inputs), rank_(rank), output_(output) {}

  CheckResult run() {
    if (!case_.has_output(rank_)) return result_;
    if (effective_.is_lossy()) {
      case_.is_reduction() ? check_lossy() : check_lossy_parts();
    } else {
      for (std::uint64_t first = 0; first < case_.output_count(); first += kInputBlock) {
        const std::uint64_t left = case_.output_count() - first;
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kInputBlock, left));
        inputs_.as_bits() ? check_bits(first, n) : check_exact(first, n);
      }
    }
    result_.digest = XXH3_64bits(output_, case_.output_count() * element_bytes(case_.type));
    return result_;
  }

 private:
  const std::byte* output_at(std::uint64_t element) const { return output_ + element * element_bytes(case_.type); }
  // The element of the ranks' inputs at which this rank's part begins.
  std::uint64_t input_begin() const {
    return has_input_parts(case_.collective) ? static_cast<std::uint64_t>(rank_) * case_.count : 0;
  }

  void check_bits(std::uint64_t first, std::size_t n) {
    Bits expected;
    expect_bits(first, {expected.data(), n});
    const std::size_t size = element_bytes(case_.type);
    std::array<std::byte, sizeof(expected)> wanted;
    store_elements(case_.type, {expected.data(), n}, wanted.data());
    const std::byte* const got = output_at(first);
    if (std::memcmp(wanted.data(), got, n * size) == 0) return;
    for (std::size_t i = 0; i < n * size; i += size) result_.wrong += std::memcmp(&wanted[i], got + i, size) != 0;
  }

  void expect_bits(std::uint64_t first, std::span<std::uint64_t> expected) {
    if (!case_.is_reduction()) return expect_moved(first, expected);
    Bits other;
    reduced_elements(0, first, expected);
    for (int rank = 1; rank < case_.world; ++rank) {
      const std::span<std::uint64_t> block(other.data(), expected.size());
      reduced_elements(rank, first, block);
      combine(case_.type, case_.op, expected, block);
    }
  }

  // A rank's input to the reduction; booleans are reduced to 0 or 1.
  void reduced_elements(int rank, std::uint64_t first, std::span<std::uint64_t> target) const {
    inputs_.elements(rank, input_begin() + first, target);
    if (case_.type != DataType::boolean) return;
    for (std::uint64_t& value : target) value = value != 0;
  }

  // The rank whose input is the output's part `part`.
  int source_of(std::uint64_t part) const {
    if (has_output_parts(case_.collective)) return static_cast<int>(part);
    return case_.collective == kSendrecv ? (rank_ + case_.world - 1) % case_.world : case_.root;
  }

  // A block of the output may hold the ends of several ranks' inputs.
  void expect_moved(std::uint64_t first, std::span<std::uint64_t> expected) {
    while (!expected.empty()) {
      const std::uint64_t begin = first % case_.count;
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(expected.size(), case_.count - begin));
      inputs_.elements(source_of(first / case_.count), input_begin() + begin, expected.first(n));
      expected = expected.subspan(n);
      first += n;
    }
  }

  void check_exact(std::uint64_t first, std::size_t n) {
    Values expected, other, got;
    const std::span<double> sum(expected.data(), n);
    inputs_.contributions(0, input_begin() + first, sum);
    for (int rank = 1; rank < case_.world; ++rank) {
      inputs_.contributions(rank, input_begin() + first, {other.data(), n});
      combine(case_.op, sum, {other.data(), n});
    }
    load_values(case_.type, output_at(first), {got.data(), n});
    const bool averaged = case_.op == ReduceOp::avg;
    // An ulp of x is at least |x| 2^-p, so this is at most 2 of them.
    const double allowed = averaged ? std::ldexp(1, 1 - precision_bits(case_.type)) : 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double exact = averaged ? sum[i] / case_.world : sum[i];
      judge(got[i], exact, std::abs(exact) * allowed);
    }
  }

  void judge(double got, double exact, double bound) {
    const double error = std::abs(got - exact);
    result_.wrong += !(error <= bound);  // NaN is wrong, too
    result_.largest_error = !(error <= result_.largest_error) ? error : result_.largest_error;
    result_.largest_bound = std::max(result_.largest_bound, bound);
  }

  void check_lossy() {
    const ErrorModel model(case_, effective_);
    std::vector<double> sum(model.group_elements()), other(sum.size()), got(sum.size());
    std::vector<Extremes> extremes(static_cast<std::size_t>(case_.world));
    for (const ErrorModel::Chunk& chunk : model.chunks(rank_)) {
      for (std::uint64_t done = 0; done < chunk.input.count; done += sum.size()) {
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(sum.size(), chunk.input.count - done));
        std::fill_n(sum.begin(), n, 0.0);
        for (int rank = 0; rank < case_.world; ++rank) {
          inputs_.contributions(rank, chunk.input.begin + done, {other.data(), n});
          extremes[static_cast<std::size_t>(rank)] = extremes_of({other.data(), n});
          combine(ReduceOp::sum, {sum.data(), n}, {other.data(), n});
        }
        const double bound = model.bound(chunk.owner, extremes, extremes_of({sum.data(), n}));
        load_values(case_.type, output_at(chunk.output.begin + done), {got.data(), n});
        const double divisor = case_.op == ReduceOp::avg ? case_.world : 1;
        for (std::size_t i = 0; i < n; ++i) judge(got[i], sum[i] / divisor, bound);
      }
    }
  }

  // Checks moved elements, part by part. all_to_all does not compress a rank's own part.
  void check_lossy_parts() {
    const ErrorModel model(case_, effective_);
    std::vector<double> sent(model.group_elements()), got(sent.size());
    for (std::uint64_t first = 0; first < case_.output_count();) {
      const std::uint64_t part = first / case_.count;
      const std::uint64_t begin = first % case_.count;
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(sent.size(), case_.count - begin));
      const int source = source_of(part);
      inputs_.values(source, input_begin() + begin, {sent.data(), n});
      load_values(case_.type, output_at(first), {got.data(), n});
      const bool stays = case_.collective == Collective::all_to_all && source == rank_;
      const double bound = stays ? 0 : model.moving_bound(extremes_of({sent.data(), n}));
      for (std::size_t i = 0; i < n; ++i) judge(got[i], sent[i], bound);
      first += n;
    }
  }

  const Case& case_;
  const Effective& effective_;
  const Inputs& inputs_;
  const int rank_;
  const std::byte* output_;
  CheckResult result_;
};

}  // namespace

CheckResult check_output(const Case& c, const Effective& effective, const Inputs& inputs, int rank,
                         const std::byte* output) {
  return Checker(c, effective, inputs, rank, output).run();
}

}  // namespace qccl::tools
