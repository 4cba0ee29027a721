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

// Checks one chunk, that is, one owner's part, of a reduction.
class ChunkCheck {
 public:
  ChunkCheck(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs, SumTree tree)
      : call_(call),
        inputs_(inputs),
        tree_(std::move(tree)),
        owner_(tree_.owner),
        begin_(tree_.begin),
        end_(tree_.end),
        codec_(make_codec(call.compression).take_or_throw()),
        bucket_(codec_ != nullptr ? codec_->bucket_size() : 1) {}

  // `output` holds the elements from `output_begin` on.
  std::string check(const ByteVector& output, std::uint64_t output_begin) {
    for (std::uint64_t first = begin_; first < end_; first += bucket_) {
      first_ = first;
      last_ = std::min(first + bucket_, end_);
      std::string violation = check_bucket(output, output_begin);
      if (!violation.empty()) return violation;
    }
    return {};
  }

 private:
  bool requantizes() const { return tree_.travels; }
  bool averages() const { return call_.op == ReduceOp::avg; }
  bool is_16_bit() const { return call_.type == DataType::float16 || call_.type == DataType::bfloat16; }
  // The relative rounding error of an addition, and the largest finite sum: float32's, for float64 its own.
  long double addition_unit() const { return call_.type == DataType::float64 ? 0x1p-53L : 0x1p-24L; }
  long double most_of_sums() const { return call_.type == DataType::float64 ? largest(call_.type) : kFloatMax; }

  long double input(int rank, std::uint64_t i) const {
    return element(call_.type, inputs_[static_cast<std::size_t>(rank)], i);
  }

  bool is_encoded_on_its_way(int rank) const {
    if (owner_ < 0) return true;
    for (; rank != owner_; rank = tree_.parent[static_cast<std::size_t>(rank)]) {
      if (!tree_.raw[static_cast<std::size_t>(rank)]) return true;
    }
    return false;
  }

  void add_rank(int rank) {
    for (std::uint64_t i = first_; i < last_; ++i) {
      const long double value = input(rank, i);
      exact_[i - first_] += value;
      magnitude_[i - first_] += std::fabs(value);
      if (std::isfinite(value)) continue;
      own_poison_[i - first_] = true;
      all_poisoned_ |= is_encoded_on_its_way(rank) || requantizes();
    }
  }

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
      result.sum.push_back(input(rank, i));
      result.magnitude.push_back(std::fabs(result.sum.back()));
    }
    int parts = 1;
    for (int below = 0; below < world(); ++below) {
      if (below == rank || tree_.parent[static_cast<std::size_t>(below)] != rank) continue;
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
      result.error += parts * addition_unit() * (most + result.error);
      result.error += own_rounding(rank, most + result.error);
    }
    result.error += travel_error(result, rank, parts == 1);
    return result;
  }

  // The rounding before each swap but the first, whose sum is still the rank's input, or is not yet sent.
  long double own_rounding(int rank, long double largest_magnitude) {
    if (!tree_.rounds_own) return 0;
    const auto swaps = std::count(tree_.parent.begin(), tree_.parent.end(), rank);
    return static_cast<long double>(std::max<std::ptrdiff_t>(0, swaps - 1)) * rounding_error(largest_magnitude, false);
  }

  // A 16-bit sum that is sent uncompressed or through an exact codec is rounded first.
  long double rounding_error(long double largest_magnitude, bool is_input) {
    const bool rounds = is_16_bit() && !is_input && std::isfinite(largest_magnitude);
    may_overflow_ |= rounds && largest_magnitude > largest(call_.type);
    return rounds ? half_spacing(call_.type, largest_magnitude) / 2 : 0;
  }

  long double travel_error(const Partial& part, int rank, bool is_input) {
    const Encoded block = encoded_block(part.sum, [&](std::size_t) { return part.error; });
    const long double largest_magnitude = block.magnitude();
    const bool is_raw = codec_ == nullptr || tree_.raw[static_cast<std::size_t>(rank)];
    if (is_raw || codec_->is_exact()) return rounding_error(largest_magnitude, is_input);
    all_poisoned_ |= is_float16(call_.compression) && is_input && largest_magnitude >= 65520;
    return bound_of_encoding(block);
  }

  // The block of values that are each off by up to error_of(index).
  template <class ErrorOf>
  static Encoded encoded_block(const std::vector<long double>& values, ErrorOf error_of) {
    Encoded block{std::numeric_limits<long double>::infinity(), -std::numeric_limits<long double>::infinity(), 0};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const long double error = error_of(i);
      block.minimum = std::fmin(block.minimum, values[i] - error);
      block.maximum = std::fmax(block.maximum, values[i] + error);
      block.norm = std::hypot(block.norm, std::fabs(values[i]) + error);
    }
    return block;
  }

  // Also notes whether values may become infinite: a float16 on the wire ends at 65504, with one bit the
  // unit is the whole range, and other codecs show it by their bound.
  long double bound_of_encoding(const Encoded& block) {
    const long double bound = stated_bound(call_.compression, codec_.get(), block);
    may_overflow_ |= is_float16(call_.compression) && block.magnitude() >= 65504;
    may_overflow_ |= is_one_bit(call_.compression) && block.maximum - block.minimum > kFloatMax;
    may_overflow_ |= std::isinf(bound);
    return bound;
  }

  void sum_ranks() {
    const std::size_t size = last_ - first_;
    exact_.assign(size, 0);
    magnitude_.assign(size, 0);
    own_poison_.assign(size, false);
    encoded_bound_ = 0;
    all_poisoned_ = may_overflow_ = false;
    for (int rank = 0; rank < world(); ++rank) {
      add_rank(rank);
      if (tree_.parent[static_cast<std::size_t>(rank)] == owner_ && rank != owner_)
        encoded_bound_ += partial(rank).error;
    }
    if (owner_ >= 0) {
      const long double most = *std::max_element(magnitude_.begin(), magnitude_.end());
      encoded_bound_ += own_rounding(owner_, most + encoded_bound_);
    }
  }

  // The sum's or average's error before the owner encodes it again.
  void bound_sums() {
    error_.assign(exact_.size(), 0);
    for (std::size_t i = 0; i < exact_.size(); ++i) {
      const long double most = magnitude_[i] + encoded_bound_;
      may_overflow_ |= most * (1 + 0x1p-20L) > most_of_sums();
      error_[i] = encoded_bound_ + static_cast<long double>(world()) * addition_unit() * most;
      if (averages()) {
        exact_[i] /= world();
        error_[i] = error_[i] / world() + addition_unit() * most / world() + 0x1p-149L;
      }
    }
  }

  void add_result_encoding() {
    if (!requantizes()) return;
    const Encoded block = encoded_block(exact_, [&](std::size_t i) { return error_[i]; });
    const long double bound = bound_of_encoding(block);
    for (long double& error : error_) error += bound;
    may_overflow_ |= block.magnitude() > kFloatMax;
  }

  std::string check_bucket(const ByteVector& output, std::uint64_t output_begin) {
    sum_ranks();
    bound_sums();
    add_result_encoding();
    for (std::uint64_t i = first_; i < last_; ++i) {
      const std::size_t at = i - first_;
      const long double value = element(call_.type, output, i - output_begin);
      const bool poisoned = all_poisoned_ || own_poison_[at];
      std::string violation = check_element(at, value, poisoned);
      if (!violation.empty()) return fmt::format("element {}: {}", i, violation);
    }
    return {};
  }

  std::string check_element(std::size_t at, long double value, bool poisoned) const {
    long double bound = error_[at];
    bool may_overflow = may_overflow_;
    if (is_16_bit()) {
      bound += half_spacing(call_.type, std::fabs(exact_[at]) + bound) / 2;
      may_overflow |= std::fabs(exact_[at]) + bound > largest(call_.type);
    }
    if (!std::isfinite(value)) {
      if (poisoned || may_overflow) return {};
      return fmt::format("{} where all that it depends on is finite (exact {})", value, exact_[at]);
    }
    if (poisoned) return fmt::format("{} is a number although a value of its bucket was none", value);
    const long double error = std::fabs(value - exact_[at]);
    if (error <= bound) return {};
    return fmt::format("{} instead of {}: error {} is over the bound {}", value, exact_[at], error, bound);
  }

  int world() const { return static_cast<int>(inputs_.size()); }

  const engine::ResolvedCall& call_;
  const std::vector<ByteVector>& inputs_;
  const SumTree tree_;
  const int owner_;  // -1: every rank's part is encoded (one-shot)
  const std::uint64_t begin_;
  const std::uint64_t end_;
  const std::shared_ptr<const Codec> codec_;
  const std::uint64_t bucket_;
  std::uint64_t first_ = 0;  // the bucket
  std::uint64_t last_ = 0;
  std::vector<long double> exact_;
  std::vector<long double> magnitude_;
  std::vector<long double> error_;
  std::vector<bool> own_poison_;
  long double encoded_bound_ = 0;
  bool all_poisoned_ = false;
  bool may_overflow_ = false;
};

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

std::string check_bound(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                        const std::vector<ByteVector>& outputs) {
  const std::vector<ByteVector> added = contributions(call, inputs);
  for (const SumTree& tree : sum_trees(call, static_cast<int>(inputs.size()))) {
    if (tree.begin == tree.end) continue;
    // All ranks hold the same all_reduce result (checked separately), so checking one of them is enough.
    const bool scatters = call.collective == Collective::reduce_scatter;
    const int holder = call.collective == Collective::reduce ? call.root : std::max(tree.owner, 0);
    ChunkCheck chunk(call, added, tree);
    const std::string violation = chunk.check(outputs[static_cast<std::size_t>(holder)], scatters ? tree.begin : 0);
    if (!violation.empty()) return fmt::format("chunk of rank {}, {}", tree.owner, violation);
  }
  return {};
}

}  // namespace qccl::testing
