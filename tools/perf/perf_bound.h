// How far a compressed reduction may be from the exact one, element by element.
//
// The bound is computed per group of whole buckets (one bucket, or as many as make 256 elements),
// from the extremes of the ranks' inputs there. B(low, high) is the codec's stated bound (which may
// also depend on the norm), S the exact sum, and Q the ranks whose input travels encoded (all but
// the chunk's owner; one-shot all_reduce: all):
//
//   e1 = sum over r in Q of B(min x_r, max x_r)               encoding the inputs
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

#include <memory>
#include <vector>

#include "codec/codec.h"
#include "codec/geometry.h"
#include "plan/algorithms/registry.h"
#include "tools/perf/perf_case.h"

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
  double largest() const;
};
Extremes extremes_of(std::span<const double> values);

class ErrorModel {
 public:
  // Throws qccl::Error if there is no such codec.
  ErrorModel(const Case& c, const Effective& effective);

  // A chunk of `rank`'s output.
  struct Chunk {
    int owner;
    Range input;   // in the ranks' inputs
    Range output;  // in the output
  };
  std::vector<Chunk> chunks(int rank) const;
  // Elements of a group; groups start at a chunk's start.
  std::uint64_t group_elements() const { return group_elements_; }

  // The bound for one group: extremes and norm of each rank's input, and of their exact sum.
  double bound(int owner, const std::vector<Extremes>& inputs, const Extremes& sum) const;
  // The same for a group that is only moved.
  double moving_bound(const Extremes& input) const;

 private:
  // The error of rounding numbers of this size to the type.
  double rounding_bound(double magnitude) const;
  // The codec's bound for numbers like these that are each off by up to `error`.
  double codec_bound(const Extremes& exact, double error) const;

  // The error of encoding partial sums, one after the other.
  double hop_bound(const std::vector<Extremes>& inputs) const;

  Case case_;
  const plan::AlgorithmEntry& algorithm_;
  bool has_owners_;  // of chunks, which encode the sums anew
  std::shared_ptr<const Codec> codec_;
  std::uint64_t group_elements_;
};

// Payload bytes that `rank` would send in this case uncompressed.
std::uint64_t uncompressed_bytes(const Case& c, Algorithm algorithm, int rank);

}  // namespace qccl::tools
