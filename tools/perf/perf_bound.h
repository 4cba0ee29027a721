// The check of one rank's output, and how far a compressed reduction may be from the exact one, element by element.
//
// The bound is computed per group of whole buckets (one bucket, or as many as make 256 elements),
// from the extremes of the ranks' inputs there. B(low, high) is the codec's stated bound (which may
// also depend on the norm), S the exact sum, and Q the ranks whose input travels encoded (all but
// the chunk's owner; one-shot all_reduce: all):
//
//   e1 = sum over r in Q of B(min x_r, max x_r)               encoding the inputs (but the least of them, if owners'
//                                                              shares may follow the lines' rates)
//      + N 2^-23 sum over all r of max|x_r|                   adding in fp32, in rank order
//   (avg: S and e1 divided by N, one more rounding)
//   e2 = 2^-p (max|S| + e1)         16-bit types: rounding the sum once; p bits of precision
//   e3 = B(min S - e1 - e2, max S + e1 + e2)        if chunks have owners (SRA), unless the sum stays: encoding the
//      + 2^-p (max|S| + e1 + e2 + e3)                  owner's sum and rounding the decoded values
//
// The bound is e1 + e2 + e3. If partial sums travel (algorithms that do not add in rank order), every rank encodes one
// sum of some of the inputs. With the errors so far, it lies between L = sum of min(0, min x_r) and
// H = sum of max(0, max x_r). Then N repetitions of
//
//   e1 = e1 + B(L - e1, H + e1) + N 2^-23 max(|L|, |H|)
//
// replace the first and third line. At 1 bit this doubles per hop: it is useless below 4 bits.
//
// Elements that are only moved are encoded once, with any algorithm, and rounded if the type is narrow.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "codec/codec.h"
#include "codec/geometry.h"
#include "plan/algorithms/registry.h"
#include "tools/perf/perf_case.h"
#include "tools/perf/perf_inputs.h"

namespace qccl::tools {

// The compression and algorithm that a row ran with.
struct Effective {
  Compression compression;
  Algorithm algorithm = Algorithm::one_shot;
  bool is_lossy() const { return !compression.is_none(); }
};

// Least and largest of a run of numbers, and at most their Euclidean norm.
struct Extremes {
  double low = 0;
  double high = 0;
  double norm = 0;
  double largest() const { return std::max(std::abs(low), std::abs(high)); }
};

inline Extremes extremes_of(std::span<const double> values) {
  Extremes extremes = {values[0], values[0]};
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
    extremes.low = value < extremes.low ? value : extremes.low;
    extremes.high = value > extremes.high ? value : extremes.high;
  }
  extremes.norm = std::sqrt(squares) * (1 + 0x1p-30);
  return extremes;
}

inline plan::Request request_of(const Case& c, Algorithm algorithm) {
  return {.collective = *c.collective,
          .algorithm = algorithm,
          .world = c.world,
          .root = c.root,
          .count = c.count,
          .slice_elements = std::max<std::uint64_t>(c.count, 1)};
}

class ErrorModel {
 public:
  // Throws qccl::Error if there is no such codec.
  ErrorModel(const Case& c, const Effective& effective)
      : case_(c),
        algorithm_(effective.algorithm),
        in_rank_order_(c.is_reduction() && plan::adds_in_rank_order(*c.collective, algorithm_)),
        has_owners_(plan::has_owners(plan::entry_of(algorithm_))) {
    codec_ = make_codec(effective.compression).take_or_throw();
    constexpr std::uint64_t kLeastGroup = 256;
    const std::uint64_t bucket = codec_->bucket_size();
    group_elements_ = (kLeastGroup + bucket - 1) / bucket * bucket;
  }

  // A chunk of `rank`'s output.
  struct Chunk {
    int owner;
    Range input;   // in the ranks' inputs
    Range output;  // in the output
  };

  std::vector<Chunk> chunks(int rank) const {
    if (case_.collective == Collective::reduce_scatter) {
      return {{rank, {static_cast<std::uint64_t>(rank) * case_.count, case_.count}, {0, case_.count}}};
    }
    // With partial sums the bound is the same for every rank, and every chunk starts with a bucket.
    if (!in_rank_order_) return {{0, {0, case_.count}, {0, case_.count}}};
    plan::Request request = request_of(case_, algorithm_);
    request.compressed = true;
    request.bucket_size = codec_->bucket_size();
    std::vector<Chunk> chunks;
    for (const Range& range : plan::chunks(request)) {
      const int owner = has_owners_ ? static_cast<int>(chunks.size()) : case_.root;
      chunks.push_back({owner, range, range});
    }
    return chunks;
  }

  // Elements of a group; groups start at a chunk's start.
  std::uint64_t group_elements() const { return group_elements_; }

  // The bound for one group: extremes and norm of each rank's input, and of their exact sum.
  double bound(int owner, const std::vector<Extremes>& inputs, const Extremes& sum) const {
    double e1 = in_rank_order_ ? 0 : hop_bound(inputs);
    double least_own = std::numeric_limits<double>::infinity();  // encoding the input of one that may be the owner
    for (int rank = 0; rank < case_.world && in_rank_order_; ++rank) {
      const Extremes& input = inputs[static_cast<std::size_t>(rank)];
      const double encoding = codec_bound(input, 0);
      e1 += encoding + case_.world * 0x1p-23 * input.largest();
      if (rank == owner || has_shares()) least_own = std::min(least_own, encoding);
    }
    const bool own_encoded = case_.collective == Collective::all_reduce && !has_owners_;
    if (in_rank_order_ && !own_encoded) e1 -= least_own;
    Extremes result = sum;
    if (case_.op == ReduceOp::avg) {
      result = {sum.low / case_.world, sum.high / case_.world, sum.norm / case_.world};
      e1 = e1 / case_.world + result.largest() * 0x1p-23;
    }
    double total = e1 + rounding_bound(result.largest() + e1);
    const bool stays = case_.collective == Collective::reduce && owner == case_.root;
    if (!in_rank_order_ || !has_owners_ || stays) return total;
    total += codec_bound(result, total);
    return total + rounding_bound(result.largest() + total);
  }

  // The same for a group that is only moved.
  double moving_bound(const Extremes& input) const {
    const double error = codec_bound(input, 0);
    return error + rounding_bound(input.largest() + error);
  }

 private:
  // The library may have given ranks other shares than these: any of them may be the owner.
  bool has_shares() const { return plan::uses_shares(*case_.collective, algorithm_); }

  // The error of rounding numbers of this size to the type.
  double rounding_bound(double magnitude) const {
    const bool narrow = element_bytes(case_.type) == 2;
    return narrow ? std::ldexp(magnitude, -precision_bits(case_.type)) : 0;
  }

  // The codec's bound for numbers like these that are each off by up to `error`.
  double codec_bound(const Extremes& exact, double error) const {
    const double norm = exact.norm + error * std::sqrt(static_cast<double>(group_elements_));
    return codec_->error_bound({exact.low - error, exact.high + error, norm});
  }

  // The error of encoding partial sums, one after the other.
  double hop_bound(const std::vector<Extremes>& inputs) const {
    Extremes sums;
    for (const Extremes& input : inputs) {
      sums.low += std::min(0.0, input.low);
      sums.high += std::max(0.0, input.high);
      sums.norm += input.norm;
    }
    double error = 0;
    for (int rank = 0; rank < case_.world; ++rank) {
      error += codec_bound(sums, error) + case_.world * 0x1p-23 * sums.largest();
      if (codec_->is_exact()) error += rounding_bound(sums.largest() + error);  // sums of 16 bits are rounded first
    }
    return error;
  }

  Case case_;
  Algorithm algorithm_;
  bool in_rank_order_;
  bool has_owners_;  // of chunks, which encode the sums anew
  std::shared_ptr<const Codec> codec_;
  std::uint64_t group_elements_;
};

// Payload bytes that `rank` would send in this case uncompressed.
inline std::uint64_t uncompressed_bytes(const Case& c, Algorithm algorithm, int rank) {
  std::uint64_t elements = 0;
  for (const plan::Lane& lane : plan::schedule_of(request_of(c, algorithm), rank).lanes) {
    for (const plan::Step& step : lane.steps) {
      if (plan::sends(step.kind)) elements += lane.count * step.peers.size();
    }
  }
  return elements * element_bytes(c.type);
}

// ---- The check of one rank's output, block by block (perf_check.cc)

struct CheckResult {
  std::uint64_t wrong = 0;   // elements outside their bound
  double largest_error = 0;  // against the exact result
  double largest_bound = 0;  // 0: must be exact
  std::uint64_t digest = 0;  // of the output's bytes
};

// `output` is where the case placed `rank`'s result. Uncompressed results must be exact, except
// floating averages: within 2 ulp.
CheckResult check_output(const Case& c, const Effective& effective, const Inputs& inputs, int rank,
                         const std::byte* output);

}  // namespace qccl::tools
