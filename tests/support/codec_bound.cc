// check_bound() and the parts of the codecs' definitions that it needs: see reference.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/reference.h"
#include "support/sum_tree.h"

namespace qccl::testing {
namespace {

constexpr long double kFloatMax = std::numeric_limits<float>::max();

bool is_float16(const Compression& compression) { return compression == cast(DataType::float16); }

// With one bit, a step may be wider than the largest float.
bool is_one_bit(const Compression& compression) {
  return compression.name() == "minmax" && compression.setting("bits") == 1;
}

std::uint64_t bucket_size_of(const Compression& compression) {
  const auto codec = make_codec(compression).take_or_throw();
  return codec != nullptr ? codec->bucket_size() : 1;
}

long double unit_in_last_place(long double magnitude) {
  return magnitude < 0x1p-126L ? 0x1p-149L : std::ldexp(1.0L, std::ilogb(magnitude) - 23);
}

// The known properties of an encoded bucket: its extremes, and an upper bound of its Euclidean norm.
struct Encoded {
  long double minimum = 0;
  long double maximum = 0;
  long double norm = 0;
  long double magnitude() const { return std::max(std::fabs(minimum), std::fabs(maximum)); }
};

// The largest error of one encoding of such a bucket, from the codec's definition. Codecs without a
// definition here must keep the bound that they state themselves.
long double stated_bound(const Compression& compression, const Codec* codec, const Encoded& block) {
  if (compression.is_none()) return 0;
  const long double most = block.magnitude();
  if (compression.name() == "cast") {
    return is_float16(compression) ? std::max(most * 0x1p-11L, 0x1p-25L) : std::max(most * 0x1p-8L, 0x1p-134L);
  }
  if (!std::isfinite(most)) return 0;
  if (compression.name() != "minmax") {
    const BlockSummary summary{static_cast<double>(block.minimum), static_cast<double>(block.maximum),
                               static_cast<double>(block.norm)};
    return codec->error_bound(summary);
  }
  const auto bits = static_cast<int>(compression.setting("bits"));
  if (bits == 32) return 0;
  const long double levels = std::ldexp(1.0L, bits) - 1;
  const long double unit = std::max((block.maximum - block.minimum) / levels, 0x1p-126L);
  return unit / 2 + 6 * unit_in_last_place(most);
}

bool is_16_bit(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

// The relative rounding error of an addition, and the largest finite sum: float32's, for float64 its own.
long double addition_unit(DataType type) { return type == DataType::float64 ? 0x1p-53L : 0x1p-24L; }
long double most_of_sums(DataType type) { return type == DataType::float64 ? largest(type) : kFloatMax; }

// The errors that encodings and roundings on the way add, and whether any of their results may be infinite.
class EncodingErrors {
 public:
  EncodingErrors(const engine::ResolvedCall& call, const Codec* codec) : call_(call), codec_(codec) {}

  // Whether values are sent by a codec that may change them.
  bool are_lossy() const { return codec_ != nullptr && !codec_->is_exact(); }

  // A float16 on the wire ends at 65504, with one bit the unit is the whole range, and other codecs show by their bound
  // that they may overflow.
  long double of_encoding(const Encoded& block) {
    const long double bound = stated_bound(call_.compression, codec_, block);
    may_overflow_ |= is_float16(call_.compression) && block.magnitude() >= 65504;
    may_overflow_ |= is_one_bit(call_.compression) && block.maximum - block.minimum > kFloatMax;
    may_overflow_ |= std::isinf(bound);
    return bound;
  }
  // A 16-bit sum that is sent uncompressed or through an exact codec is rounded first.
  long double of_rounding(long double largest_magnitude) {
    if (!is_16_bit(call_.type) || !std::isfinite(largest_magnitude)) return 0;
    may_overflow_ |= largest_magnitude > largest(call_.type);
    return half_spacing(call_.type, largest_magnitude) / 2;
  }
  bool may_overflow() const { return may_overflow_; }

 private:
  const engine::ResolvedCall& call_;
  const Codec* const codec_;
  bool may_overflow_ = false;
};

// The block of values that are each off by up to error_of(index).
template <class ErrorOf>
Encoded encoded_block(const std::vector<long double>& values, ErrorOf error_of) {
  Encoded block{std::numeric_limits<long double>::infinity(), -std::numeric_limits<long double>::infinity(), 0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const long double error = error_of(i);
    block.minimum = std::fmin(block.minimum, values[i] - error);
    block.maximum = std::fmax(block.maximum, values[i] + error);
    block.norm = std::hypot(block.norm, std::fabs(values[i]) + error);
  }
  return block;
}

// A call's inputs and the order in which one owner's part of them is added.
struct Reduction {
  const engine::ResolvedCall& call;
  const std::vector<ByteVector>& inputs;
  const SumTree& tree;
  const std::shared_ptr<const Codec> codec = make_codec(call.compression).take_or_throw();

  int world() const { return static_cast<int>(inputs.size()); }
  long double input(int rank, std::uint64_t i) const {
    return element(call.type, inputs[static_cast<std::size_t>(rank)], i);
  }
  int parent(int rank) const { return tree.parent[static_cast<std::size_t>(rank)]; }
  bool is_raw(int rank) const { return tree.raw[static_cast<std::size_t>(rank)]; }

  bool is_encoded_on_its_way(int rank) const {
    if (tree.owner < 0) return true;  // every rank's part is encoded (one-shot)
    for (; rank != tree.owner; rank = parent(rank)) {
      if (!is_raw(rank)) return true;
    }
    return false;
  }
};

// The exact sum of a bucket's elements [first, last), the bounds of their errors, and which of them need not be finite.
class BucketSum {
 public:
  BucketSum(const Reduction& reduction, std::uint64_t first, std::uint64_t last)
      : reduction_(reduction),
        first_(first),
        last_(last),
        errors_(reduction.call, reduction.codec.get()),
        exact_(last - first),
        magnitude_(last - first),
        error_(last - first),
        own_poison_(last - first) {
    add_ranks();
    bound_sums();
    if (reduction_.tree.travels) add_result_encoding();
  }

  // What is wrong with the value as the sum of element first + at; "" if nothing.
  std::string violation(std::size_t at, long double value) const {
    const DataType type = reduction_.call.type;
    long double bound = error_[at];
    bool may_overflow = may_overflow_ || errors_.may_overflow();
    if (is_16_bit(type)) {
      bound += half_spacing(type, std::fabs(exact_[at]) + bound) / 2;
      may_overflow |= std::fabs(exact_[at]) + bound > largest(type);
    }
    const bool poisoned = all_poisoned_ || own_poison_[at];
    if (!std::isfinite(value)) {
      if (poisoned || may_overflow) return {};
      return fmt::format("{} where all that it depends on is finite (exact {})", value, exact_[at]);
    }
    if (poisoned) return fmt::format("{} is a number although a value of its bucket was none", value);
    const long double error = std::fabs(value - exact_[at]);
    if (error <= bound) return {};
    return fmt::format("{} instead of {}: error {} is over the bound {}", value, exact_[at], error, bound);
  }

 private:
  // The exact sum of a rank and all ranks below it, and the error bound of the partial sum that arrives
  // above it: the errors from below, the additions, and one encoding or rounding on its way.
  struct Partial {
    std::vector<long double> sum;
    std::vector<long double> magnitude;
    long double error = 0;
  };
  Partial partial(int rank) {
    Partial result;
    for (std::uint64_t i = first_; i < last_; ++i) {
      result.sum.push_back(reduction_.input(rank, i));
      result.magnitude.push_back(std::fabs(result.sum.back()));
    }
    int parts = 1;
    for (int below = 0; below < reduction_.world(); ++below) {
      if (below == rank || reduction_.parent(below) != rank) continue;
      const Partial part = partial(below);
      ++parts;
      result.error += part.error;
      for (std::size_t i = 0; i < result.sum.size(); ++i) {
        result.sum[i] += part.sum[i];
        result.magnitude[i] += part.magnitude[i];
      }
    }
    if (parts > 1) {
      const long double most = *std::max_element(result.magnitude.begin(), result.magnitude.end());
      result.error += parts * addition_unit(reduction_.call.type) * (most + result.error);
      result.error += own_rounding(rank, most + result.error);
    }
    result.error += travel_error(result, rank, parts == 1);
    return result;
  }

  // The rounding before each swap but the first, whose sum is still the rank's input, or is not yet sent.
  long double own_rounding(int rank, long double largest_magnitude) {
    const SumTree& tree = reduction_.tree;
    if (!tree.rounds_own) return 0;
    const auto swaps = std::count(tree.parent.begin(), tree.parent.end(), rank);
    return static_cast<long double>(std::max<std::ptrdiff_t>(0, swaps - 1)) * errors_.of_rounding(largest_magnitude);
  }

  long double travel_error(const Partial& part, int rank, bool is_input) {
    const Encoded block = encoded_block(part.sum, [&](std::size_t) { return part.error; });
    if (reduction_.is_raw(rank) || !errors_.are_lossy()) {
      return is_input ? 0 : errors_.of_rounding(block.magnitude());
    }
    all_poisoned_ |= is_float16(reduction_.call.compression) && is_input && block.magnitude() >= 65520;
    return errors_.of_encoding(block);
  }

  void add_rank(int rank) {
    for (std::uint64_t i = first_; i < last_; ++i) {
      const long double value = reduction_.input(rank, i);
      exact_[i - first_] += value;
      magnitude_[i - first_] += std::fabs(value);
      if (std::isfinite(value)) continue;
      own_poison_[i - first_] = true;
      all_poisoned_ |= reduction_.is_encoded_on_its_way(rank) || reduction_.tree.travels;
    }
  }

  void add_ranks() {
    const int owner = reduction_.tree.owner;
    for (int rank = 0; rank < reduction_.world(); ++rank) {
      add_rank(rank);
      if (reduction_.parent(rank) == owner && rank != owner) arrived_error_ += partial(rank).error;
    }
    if (owner >= 0) {
      const long double most = *std::max_element(magnitude_.begin(), magnitude_.end());
      arrived_error_ += own_rounding(owner, most + arrived_error_);
    }
  }

  // The sum's or average's error before the owner encodes it again.
  void bound_sums() {
    const engine::ResolvedCall& call = reduction_.call;
    const auto world = static_cast<long double>(reduction_.world());
    for (std::size_t i = 0; i < exact_.size(); ++i) {
      const long double most = magnitude_[i] + arrived_error_;
      may_overflow_ |= most * (1 + 0x1p-20L) > most_of_sums(call.type);
      error_[i] = arrived_error_ + world * addition_unit(call.type) * most;
      if (call.op == ReduceOp::avg) {
        exact_[i] /= world;
        error_[i] = error_[i] / world + addition_unit(call.type) * most / world + 0x1p-149L;
      }
    }
  }

  void add_result_encoding() {
    const Encoded block = encoded_block(exact_, [&](std::size_t i) { return error_[i]; });
    const long double bound = errors_.of_encoding(block);
    for (long double& error : error_) error += bound;
    may_overflow_ |= block.magnitude() > kFloatMax;
  }

  const Reduction& reduction_;
  const std::uint64_t first_, last_;
  EncodingErrors errors_;
  std::vector<long double> exact_, magnitude_, error_;
  std::vector<bool> own_poison_;
  long double arrived_error_ = 0;  // of the partial sums that reach the owner
  bool all_poisoned_ = false;
  bool may_overflow_ = false;
};

// Checks one owner's part of a reduction. `output` holds the elements from `output_begin` on.
std::string chunk_violation(const Reduction& reduction, const ByteVector& output, std::uint64_t output_begin) {
  const SumTree& tree = reduction.tree;
  const std::uint64_t bucket = reduction.codec != nullptr ? reduction.codec->bucket_size() : 1;
  for (std::uint64_t first = tree.begin; first < tree.end; first += bucket) {
    const std::uint64_t last = std::min(first + bucket, tree.end);
    const BucketSum sum(reduction, first, last);
    for (std::uint64_t i = first; i < last; ++i) {
      const auto violation = sum.violation(i - first, element(reduction.call.type, output, i - output_begin));
      if (violation.empty()) continue;
      if (tree.owner >= 0) return fmt::format("chunk of rank {}, element {}: {}", tree.owner, i, violation);
      return fmt::format("element {}, of which every rank adds all (support/sum_tree.cc): {}", i, violation);
    }
  }
  return {};
}

}  // namespace

std::uint64_t stated_bytes(const Compression& compression, DataType type, std::uint64_t elements) {
  if (compression.is_none()) return elements * element_bytes(type);
  if (compression.name() == "cast") return elements * 2;
  if (compression.name() != "minmax") return make_codec(compression).take_or_throw()->max_encoded_bytes(elements);
  const auto bits = static_cast<std::uint64_t>(compression.setting("bits"));
  if (bits == 32) return elements * 4;
  const auto bucket_size = static_cast<std::uint64_t>(compression.setting("bucket_size"));
  return (elements + bucket_size - 1) / bucket_size * 8 + (elements * bits + 7) / 8;
}

std::uint64_t chunk_share(const engine::ResolvedCall& call, int world) {
  if (call.collective == Collective::reduce_scatter || call.algorithm == Algorithm::one_shot) return call.count;
  const auto ranks = static_cast<std::uint64_t>(world);
  const std::uint64_t unit = std::lcm<std::uint64_t>(bucket_size_of(call.compression), 64);
  return ((call.count + ranks - 1) / ranks + unit - 1) / unit * unit;
}

std::uint64_t shared_chunk_end(const engine::ResolvedCall& call, std::size_t chunk) {
  const auto unit = static_cast<long double>(std::lcm<std::uint64_t>(bucket_size_of(call.compression), 64));
  const long double units = std::ceil(static_cast<long double>(call.count) / unit);
  const auto end = call.shares.begin() + static_cast<std::ptrdiff_t>(chunk) + 1;
  const long double part = std::accumulate(call.shares.begin(), end, 0.0L);
  const long double whole = std::accumulate(call.shares.begin(), call.shares.end(), 0.0L);
  return std::min(call.count, static_cast<std::uint64_t>(unit * std::round(units * part / whole)));
}

std::string check_bound(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                        const std::vector<ByteVector>& outputs) {
  const std::vector<ByteVector> added = contributions(call, inputs);
  for (const SumTree& tree : sum_trees(call, static_cast<int>(inputs.size()))) {
    if (tree.begin == tree.end) continue;
    // All ranks hold the same all_reduce result (checked separately), so checking one of them is enough.
    const bool scatters = call.collective == Collective::reduce_scatter;
    const int holder = call.collective == Collective::reduce ? call.root : std::max(tree.owner, 0);
    const ByteVector& output = outputs[static_cast<std::size_t>(holder)];
    const std::string violation = chunk_violation({call, added, tree}, output, scatters ? tree.begin : 0);
    if (!violation.empty()) return violation;
  }
  return {};
}

}  // namespace qccl::testing
